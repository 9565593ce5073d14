//! `howdah takeover try`: compares the responses of Howdah, on preview ports, with those of the old servers.
