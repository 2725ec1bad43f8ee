"""Log directories: one (`log_dir`), all of a broker (`log_dirs`), and what one holds before it is opened (`survey`).

May import every other room but `offline`.
"""
