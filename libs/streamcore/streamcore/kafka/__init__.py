"""Everything that talks to Kafka, and the only package that imports a Kafka client.

confluent-kafka carries the volume and the transactions; kafka-python (pure Python, 14-30 times the CPU) does the
administration, writes the control topic and reads independently, which checks the former. Errors of both come out as
``streamcore.errors``.

``settings`` one cluster and login -> ``clients`` factories and error mapping -> ``topics`` create and check,
``control`` the control topic, ``readers`` reading to the end and following, ``markers`` and ``exactly_once`` the
output protocol.
"""
