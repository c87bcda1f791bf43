# One image, every role: `celeriac web`, `celeriac worker`, `celeriac doctor`.
# Your agents: build on it (FROM celeriac, install your package) and set CELERIAC_AGENTS.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/celeriac
# The lock first: this layer is built again only when the dependencies change.
COPY requirements/ /src/requirements/
# LOCK=core leaves out litellm and mcp: enough for web, a tenth of the size.
ARG LOCK=all
RUN /opt/celeriac/bin/pip install --require-hashes --no-deps -r /src/requirements/${LOCK}.txt
# The whole tree, because celeriac/ holds links to the four folders beside it.
COPY . /src
RUN /opt/celeriac/bin/pip install --no-deps --no-build-isolation /src

FROM python:3.11-slim
RUN useradd --uid 10001 --user-group --create-home celeriac
COPY --from=build /opt/celeriac /opt/celeriac
ENV PATH=/opt/celeriac/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    LITELLM_LOCAL_MODEL_COST_MAP=True \
    CELERIAC_HOST=0.0.0.0 \
    CELERIAC_PORT=8080
USER celeriac
WORKDIR /home/celeriac
EXPOSE 8080
# Both roles finish what they have on SIGTERM.
STOPSIGNAL SIGTERM
ENTRYPOINT ["celeriac"]
CMD ["web"]
