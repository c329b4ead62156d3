"""Other libraries' environments. Each is imported only when somebody names one of its environments."""
