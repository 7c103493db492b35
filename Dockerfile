# One image for every service, driver and executor alike, for the operator and the command: Python, Java, Spark with the
# pinned jars, Headgate. `--target kafka` is a small Kafka for a laptop's cluster. The last stage is the default.

FROM python:3.11-slim-bookworm AS base
# The stand-in documentation folder: Debian's Java wants to link its manual pages.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/* /usr/share/doc /usr/share/man \
 && ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java \
 && useradd --uid 10001 --create-home --shell /usr/sbin/nologin headgate
ENV JAVA_HOME=/opt/java

# The dependencies, which change less often than the code: from the lock, by hash, and compiled, because no process
# can write there later.
FROM base AS dependencies
RUN python -m venv /opt/build && python -m venv --without-pip /opt/headgate
WORKDIR /src
COPY requirements/ requirements/
RUN /opt/build/bin/pip install --quiet --require-hashes -r requirements/bootstrap.lock \
 && /opt/build/bin/pip --python /opt/headgate/bin/python install --quiet --no-compile --require-hashes -r requirements/runtime.lock

# Jars by their locks, through Ivy, which is among Spark's own.
FROM dependencies AS jars
# Of a network with an authority of its own: the file with certificates, in the build (`--volume`, `--build-arg`).
ARG SSL_CERT_FILE
COPY libs/streamcore/streamcore/__init__.py libs/streamcore/streamcore/environment.py \
     libs/streamcore/streamcore/errors.py libs/streamcore/streamcore/lazy_names.py cli/streamcore/
COPY cli/headgate/__init__.py cli/headgate/errors.py cli/headgate/
COPY cli/headgate/console/__init__.py cli/headgate/console/messages.py cli/headgate/console/
COPY cli/headgate/local/ cli/headgate/local/
RUN PYTHONPATH=cli HEADGATE_CACHE=/jars /opt/headgate/bin/python -c "if 1: \
    from headgate.local import jars, java; \
    [jars.ensure(name, java.ensure()) for name in (jars.JarSet.S3, jars.JarSet.KAFKA)]" \
 && mkdir /jars/spark /jars/kafka && mv /jars/jars/s3-*/*.jar /jars/spark/ && mv /jars/jars/kafka-*/*.jar /jars/kafka/

FROM dependencies AS slim
COPY tools/image/slim.py tools/image/
COPY --from=jars /jars/spark/ /opt/headgate/lib/python3.11/site-packages/pyspark/jars/
RUN python tools/image/slim.py /opt/headgate/lib/python3.11/site-packages \
 && echo /opt/code > /opt/headgate/lib/python3.11/site-packages/headgate.pth \
 && /opt/headgate/bin/python -m compileall -q -j 2 /opt/headgate/lib

FROM dependencies AS code
COPY pyproject.toml README.md LICENSE ./
COPY libs/ libs/
COPY services/ services/
COPY cli/ cli/
RUN /opt/build/bin/uv pip install --python /opt/build/bin/python --no-cache --offline --no-deps --no-build-isolation \
    --compile-bytecode --target /opt/code . \
 && sed -i '1s|.*|#!/opt/headgate/bin/python|' /opt/code/bin/*

FROM base AS kafka
COPY --from=jars /jars/kafka/ /opt/kafka/
COPY tools/image/kafka /opt/kafka/bin/kafka
USER 10001
ENTRYPOINT ["tini", "--", "/opt/kafka/bin/kafka"]

FROM base AS headgate
COPY --from=slim /opt/headgate /opt/headgate
COPY tools/image/entrypoint /opt/headgate/bin/entrypoint
COPY rules/ /app/rules/
COPY streams/ /app/streams/
COPY --from=code /opt/code /opt/code
# Programs of users are modules in /app: `FROM` this image and `COPY` them there (docs/programs.md).
ENV PATH=/opt/headgate/bin:/opt/code/bin:$PATH PYTHONUNBUFFERED=1 PYTHONPATH=/app \
    SPARK_HOME=/opt/headgate/lib/python3.11/site-packages/pyspark
# Workers load the compiled decoder of JSON from here; no process can write there later.
RUN python -m streamcore.decode.walk
# Spark's JVM maps its classes from this file.
RUN HOME=/tmp python -m streamcore.spark.class_archive /opt/headgate/classes.jsa
ENV STREAMCORE_CLASS_ARCHIVE=/opt/headgate/classes.jsa
WORKDIR /app
USER 10001
ENTRYPOINT ["tini", "--", "/opt/headgate/bin/entrypoint"]
CMD ["headgate", "--help"]
