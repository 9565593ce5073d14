//! A client that asks for what an application closes by `.htaccess`.
