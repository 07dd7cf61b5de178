//! Signals at bad moments, and what must not wait for ever.
