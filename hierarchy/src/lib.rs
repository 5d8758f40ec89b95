//! The host's memory hierarchy, measured by timing alone.
