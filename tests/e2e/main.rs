//! The whole binary, driven from outside by `kubectl` and by client libraries, with real containers.
