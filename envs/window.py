"""A window for pictures."""

import numpy as np


class Window:
    """Shows pictures, (height, width, 3) uint8, with pygame. It opens at the first one: importing needs no display."""

    def __init__(self):
        self.screen = None

    def show(self, picture: np.ndarray, fps: float) -> None:
        import pygame

        if self.screen is None:
            pygame.display.init()
            self.screen, self.clock = (
                pygame.display.set_mode(picture.shape[1::-1]),
                pygame.time.Clock(),
            )
        pygame.event.pump()  # or the system takes the window for one that hangs
        self.screen.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self.clock.tick(fps)

    def close(self) -> None:
        if self.screen is not None:
            import pygame

            pygame.display.quit()
            self.screen = None
