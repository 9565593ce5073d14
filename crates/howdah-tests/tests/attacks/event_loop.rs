//! A client whose request keeps a front thread busy.
