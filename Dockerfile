# A container with everything that README's commands need.
#   docker build -t plainrl .                              PyTorch for CPUs
#   docker build -t plainrl --build-arg DEVICE=cuda .      PyTorch with CUDA; run it with --gpus all
#   docker run --rm -v "$PWD/runs:/plainrl/runs" plainrl python algos/ppo_continuous.py --env-id BipedalWalker-v3
FROM python:3.12-slim
ARG DEVICE=cpu
# OpenCV needs GLib and libGL, MuJoCo needs EGL to record videos
RUN apt-get update \
    && apt-get install -y --no-install-recommends git libegl1 libgl1 libglib2.0-0 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*
ENV MUJOCO_GL=egl
WORKDIR /plainrl
COPY requirements.txt ./
RUN if [ "$DEVICE" = cpu ]; then \
        pip install --no-cache-dir "$(grep '^torch==' requirements.txt)" --index-url https://download.pytorch.org/whl/cpu; \
    fi \
    && pip install --no-cache-dir -r requirements.txt
COPY . .
