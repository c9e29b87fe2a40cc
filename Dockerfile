# SPDX-License-Identifier: Apache-2.0
# docker build -t nurec_lite .
# docker run --gpus all -v "$PWD/runs:/nurec_lite/runs" -v nurec_lite:/cache nurec_lite -m nurec_lite.train out=runs/mine
# docker run --gpus all -p 127.0.0.1:8080:8080 -v "$PWD/runs:/nurec_lite/runs" -v nurec_lite:/cache nurec_lite -m nurec_lite.view runs/mine host=0.0.0.0
# The second volume keeps compiled kernels; without a GPU leave out --gpus. Results belong to root. To own them: mkdir -p runs cache, then
# docker run --user "$(id -u):$(id -g)" -v "$PWD/cache:/cache" -v "$PWD/runs:/nurec_lite/runs" nurec_lite -m nurec_lite.train out=runs/mine
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ENV NUREC_LITE_CACHE=/cache
WORKDIR /nurec_lite
COPY . .
RUN pip install --no-cache-dir -c constraints.txt -e '.[cuda,view]' && python -m compileall -q nurec_lite
ENTRYPOINT ["python"]
CMD ["-m", "nurec_lite.train", "--help"]
