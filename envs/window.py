"""A window that shows images."""

import numpy as np


class Window:
    """Shows images, (height, width, 3) uint8, with pygame.

    The window opens with the first image, so importing this file needs no display.
    """

    def __init__(self):
        self.screen = None

    def show(self, image: np.ndarray, fps: float) -> None:
        import pygame

        if self.screen is None:
            pygame.display.init()
            self.screen, self.clock = (
                pygame.display.set_mode(image.shape[1::-1]),
                pygame.time.Clock(),
            )
        pygame.event.pump()  # otherwise the system reports that the window does not respond
        self.screen.blit(pygame.surfarray.make_surface(image.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self.clock.tick(fps)

    def close(self) -> None:
        if self.screen is not None:
            import pygame

            pygame.display.quit()
            self.screen = None
