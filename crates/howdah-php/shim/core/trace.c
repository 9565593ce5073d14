/* The PHP stack of a running child, read from outside through the descriptor of its memory (/proc/PID/mem) that it has
 * sent to the zygote. Both processes have the same address layout, and the child is neither stopped nor asked. It may
 * change its stack during the reads, but every pointer is followed only by another checked read, so the worst result is
 * a wrong line. This follows fpm_php_trace_dump() of php-fpm, which runs as root and stops the child by ptrace instead.
 */
#include "core/internal.h"

#include <stdio.h>
#include <unistd.h>

#define MAX_DEPTH 64
#define MAX_NAME 512

static bool peek(int memory, uintptr_t from, void *to, size_t len)
{
	return pread(memory, to, len, (off_t)from) == (ssize_t)len;
}

static bool plausible(uintptr_t pointer)
{
	return pointer && (pointer & (sizeof(long) - 1)) == 0;
}

/* Reads the text of a zend_string of the child, made printable and truncated to MAX_NAME. */
static bool peek_string(int memory, uintptr_t string, char *out)
{
	size_t len;
	if (!plausible(string) || !peek(memory, string + offsetof(zend_string, len), &len, sizeof(len))
	    || len == 0) {
		return false;
	}
	if (len > MAX_NAME - 1) {
		len = MAX_NAME - 1;
	}
	if (!peek(memory, string + offsetof(zend_string, val), out, len)) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)out[i] < 0x20 || out[i] == 0x7f) {
			out[i] = '?';
		}
	}
	out[len] = '\0';
	return true;
}

typedef struct {
	uintptr_t opline, function, prev;
	uint32_t call_info;
} frame;

static bool peek_frame(int memory, uintptr_t at, frame *out)
{
	zend_execute_data copy;
	if (!plausible(at) || !peek(memory, at, &copy, sizeof(copy))) {
		return false;
	}
	out->opline = (uintptr_t)copy.opline;
	out->function = (uintptr_t)copy.func;
	out->prev = (uintptr_t)copy.prev_execute_data;
	out->call_info = copy.This.u1.type_info;
	return true;
}

static void name_of_call(int memory, const frame *call, char *out)
{
	uintptr_t name = 0, scope = 0;
	char text[MAX_NAME];
	size_t used = 0;
	if (!plausible(call->function)
	    || !peek(memory, call->function + offsetof(zend_function, common.function_name), &name, sizeof(name))) {
		strcpy(out, "???");
		return;
	}
	if (!name) {
		strcpy(out, ZEND_CALL_KIND_EX(call->call_info) == ZEND_CALL_TOP_CODE ? "{main}" : "{include}");
		return;
	}
	if (peek(memory, call->function + offsetof(zend_function, common.scope), &scope, sizeof(scope))
	    && plausible(scope)) {
		uintptr_t class_name;
		if (peek(memory, scope + offsetof(zend_class_entry, name), &class_name, sizeof(class_name))
		    && peek_string(memory, class_name, text)) {
			used = (size_t)snprintf(out, MAX_NAME * 2, "%s::", text);
		}
	}
	snprintf(out + used, MAX_NAME * 2 - used, "%s", peek_string(memory, name, text) ? text : "???");
}

/* Finds the place of a call: file and line of the nearest frame of PHP code from `at` outwards. */
static void place_of_call(int memory, uintptr_t at, char *file, uint32_t *line)
{
	strcpy(file, "unknown");
	*line = 0;
	for (int depth = 0; depth < MAX_DEPTH && at; depth++) {
		frame f;
		uint8_t type;
		if (!peek_frame(memory, at, &f)) {
			return;
		}
		if (plausible(f.function)
		    && peek(memory, f.function + offsetof(zend_function, type), &type, sizeof(type))
		    && ZEND_USER_CODE(type)) {
			uintptr_t name;
			if (peek(memory, f.function + offsetof(zend_op_array, filename), &name, sizeof(name))) {
				peek_string(memory, name, file);
			}
			if (plausible(f.opline)) {
				peek(memory, f.opline + offsetof(struct _zend_op, lineno), line, sizeof(*line));
			}
			return;
		}
		at = f.prev;
	}
}

/* Writes "name() FILE:LINE" lines, innermost call first, to `out` and returns their length. A function written in PHP
 * is shown at its current line, one written in C where it was called. */
size_t howdah_php_trace(int memory, char *out, size_t cap)
{
	uintptr_t at;
	size_t used = 0;
	if (!peek(memory, (uintptr_t)&EG(current_execute_data), &at, sizeof(at))) {
		return 0;
	}
	for (int depth = 0; depth < MAX_DEPTH && at; depth++) {
		frame f;
		char name[MAX_NAME * 2], file[MAX_NAME];
		uint32_t line;
		if (!peek_frame(memory, at, &f)) {
			break;
		}
		name_of_call(memory, &f, name);
		place_of_call(memory, at, file, &line);
		int n = snprintf(out + used, cap - used, "%s%s() %s:%u", used ? "\n" : "", name, file, line);
		if (n < 0 || (size_t)n >= cap - used) {
			break;
		}
		used += (size_t)n;
		at = f.prev;
	}
	return used;
}
