/* filter_input(INPUT_SERVER): ext/filter keeps its own raw copy of every variable, which is filled through
 * sapi_module.input_filter. Filling it costs as much as $_SERVER itself, and almost no script reads it, so it is filled
 * only when a script does: the three functions that read it are wrapped. With a filter.default other than unsafe_raw,
 * every variable passes through the filter as under php-fpm. */
#include "core/internal.h"

static zif_handler stock_input, stock_has_var, stock_input_array;

bool howdah_filter_is_default(void)
{
	if (!stock_input) {
		/* ext/filter is not loaded: input_filter is PHP's own, which changes nothing. */
		return true;
	}
	const char *filter = zend_ini_string("filter.default", sizeof("filter.default") - 1, 0);
	return !filter || !*filter || strcmp(filter, "unsafe_raw") == 0;
}

static void feed_server_variables(zend_execute_data *execute_data)
{
	if (howdah_current.filter_fed || !howdah_current.open || ZEND_CALL_NUM_ARGS(execute_data) < 1) {
		return;
	}
	zval *type = ZEND_CALL_ARG(execute_data, 1);
	ZVAL_DEREF(type);
	if (Z_TYPE_P(type) != IS_LONG || Z_LVAL_P(type) != PARSE_SERVER) {
		return;
	}
	howdah_current.filter_fed = true;
	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	for (uint32_t i = 0; i < howdah_current.var_count; i++) {
		const howdah_var_ref *ref = &howdah_current.vars[i];
		size_t name_len, len = ref->value_len;
		const char *name = howdah_var_name(ref, &name_len);
		char *value = (char *)howdah_text(ref->value_off);
		sapi_module.input_filter(PARSE_SERVER, name, &value, len, &len);
	}
}

static void input(INTERNAL_FUNCTION_PARAMETERS)
{
	feed_server_variables(execute_data);
	stock_input(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void has_var(INTERNAL_FUNCTION_PARAMETERS)
{
	feed_server_variables(execute_data);
	stock_has_var(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void input_array(INTERNAL_FUNCTION_PARAMETERS)
{
	feed_server_variables(execute_data);
	stock_input_array(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void howdah_wrap_filters(void)
{
	stock_input = howdah_wrap_function("filter_input", input);
	stock_has_var = howdah_wrap_function("filter_has_var", has_var);
	stock_input_array = howdah_wrap_function("filter_input_array", input_array);
}
