"""Topologies: stream programs, each written as one value.

A topology is made of streams and of the steps between them, from sources to lanes. The value can be printed, planned,
run in-process on tables and run on Spark, and it is the same code each time.
"""
