"""The records of an app's lanes: the newest in memory, older ones searched on the topic, new ones for live pages.

Promises: a page is the same from memory and from a search; a record that is none of its lane is passed over.
"""
