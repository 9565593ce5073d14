/* The PHP functions of the page cache (cache_calls.c) and of the shared cache (shared_cache.c), as entries for the
 * modules in core/functions.c, which is the only file that includes this header. */
#ifndef HOWDAH_CACHE_FUNCTIONS_H
#define HOWDAH_CACHE_FUNCTIONS_H

#include "howdah.h"

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cache_purge, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_VARIADIC_TYPE_INFO(0, what, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cache_tag, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_VARIADIC_TYPE_INFO(0, tags, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cache_get, 0, 1, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, default, IS_MIXED, 0, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cache_keep, 0, 2, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, value, IS_MIXED, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, ttl, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, tags, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cache_delete, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_cache_increment, 0, 1, MAY_BE_LONG | MAY_BE_FALSE)
	ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, step, IS_LONG, 0, "1")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_cache_info, 0, 0, IS_ARRAY, 1)
ZEND_END_ARG_INFO()

PHP_FUNCTION(howdah_cache_purge);
PHP_FUNCTION(howdah_cache_tag);
PHP_FUNCTION(howdah_cache_get);
PHP_FUNCTION(howdah_cache_set);
PHP_FUNCTION(howdah_cache_add);
PHP_FUNCTION(howdah_cache_delete);
PHP_FUNCTION(howdah_cache_increment);
PHP_FUNCTION(howdah_cache_delete_tag);
PHP_FUNCTION(howdah_cache_info);

#define HOWDAH_CACHE_FUNCTIONS \
	PHP_FE(howdah_cache_purge, arginfo_cache_purge) \
	PHP_FE(howdah_cache_tag, arginfo_cache_tag) \
	PHP_FE(howdah_cache_get, arginfo_cache_get) \
	PHP_FE(howdah_cache_set, arginfo_cache_keep) \
	PHP_FE(howdah_cache_add, arginfo_cache_keep) \
	PHP_FE(howdah_cache_delete, arginfo_cache_delete) \
	PHP_FE(howdah_cache_increment, arginfo_cache_increment) \
	PHP_FE(howdah_cache_delete_tag, arginfo_cache_tag) \
	PHP_FE(howdah_cache_info, arginfo_cache_info)

#endif
