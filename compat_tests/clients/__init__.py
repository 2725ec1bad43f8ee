"""Stock clients, one folder each: an adapter for the shared cases (`compat_tests/cases`), and tests of their own."""
