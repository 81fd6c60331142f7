# `untrimmed serve` with the encoder `builtin`, which needs no download. docs/service.md, "In a container".
FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /opt/untrimmed
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN /opt/untrimmed/bin/pip install --no-cache-dir -c constraints.txt ".[offline,server]"

FROM python:3.11-slim
RUN useradd --uid 1000 untrimmed && install --directory --owner untrimmed /library
COPY --from=build /opt/untrimmed /opt/untrimmed
ENV PATH=/opt/untrimmed/bin:$PATH \
    UNTRIMMED_LIBRARY=/library/videos \
    XDG_CACHE_HOME=/library/cache
USER 1000
VOLUME /library
EXPOSE 8765
# `untrimmed serve` requires a token to listen on all addresses: $UNTRIMMED_TOKEN.
ENTRYPOINT ["untrimmed"]
CMD ["serve", "--host", "0.0.0.0", "--watch", "/videos"]
HEALTHCHECK --start-period=30s --timeout=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/healthz', timeout=9)"]
