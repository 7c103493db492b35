"""Stream documents from samples: writes one for records that somebody has, and says what a document makes of them.

The package reads samples from files and topics. It knows JSON records only.
"""
