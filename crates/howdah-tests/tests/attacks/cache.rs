//! A client that turns the page cache off, fills it with junk, or reads what is another's.
