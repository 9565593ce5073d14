//! `howdah takeover plan`: finds the servers that run on this machine, and plans what becomes of each site.
