# One image for every service, driver and executor alike: Java, Python, Spark with the pinned jars, Headgate.

FROM python:3.11-slim-bookworm AS base
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/headgate/bin:$PATH PYTHONUNBUFFERED=1

FROM base AS build
RUN python -m venv /opt/headgate
WORKDIR /src
# The dependencies first: they change less often than the code.
COPY requirements/ requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/bootstrap.lock \
 && uv pip install --python /opt/headgate/bin/python --no-cache --no-build-isolation --require-hashes -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY libs/ libs/
COPY services/ services/
COPY cli/ cli/
RUN uv pip install --python /opt/headgate/bin/python --no-cache --offline --no-deps --no-build-isolation .
# What Spark needs beyond its own jars, verified against its lock, goes among them.
RUN HEADGATE_CACHE=/tmp/cache python -c "from headgate.local import jars, java; jars.ensure(jars.JarSet.SPARK, java.ensure())" \
 && cp -n /tmp/cache/jars/spark-*/*.jar /opt/headgate/lib/python3.11/site-packages/pyspark/jars/ \
 && pip uninstall --yes uv setuptools wheel

FROM base
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin headgate
COPY --from=build /opt/headgate /opt/headgate
COPY rules/ /app/rules/
COPY streams/ /app/streams/
WORKDIR /app
USER 10001
ENTRYPOINT ["tini", "--", "headgate"]
CMD ["--help"]
