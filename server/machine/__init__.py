"""A cluster on one machine: N broker processes over one metadata store on a Unix socket, and who starts them.

    plan.py           what is to run, from the settings: pure
    restarts.py       when what has ended is started again: pure
    supervisor.py     the processes: start, restart, stop
    children.py       one of them
    store_process.py  the store's process

Not obvious: everything that runs holds the directory's lock (the descriptor is inherited), so that a second supervisor
waits for what a killed one has left; and each child has standard input as its leash, so that nothing is left for long.
"""
