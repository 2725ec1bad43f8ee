"""lz4 as record batches have it: frames that are walked here (`frames`), and the library that unpacks their blocks
(`libraries`). For `barnabas.kproto.compression`.
"""
