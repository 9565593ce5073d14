/* Shared by server.c (the class and its methods) and life.c (its callbacks, manager and workers). */
#ifndef HOWDAH_SWOOLE_SERVER_H
#define HOWDAH_SWOOLE_SERVER_H

#include "swoole/internal.h"

typedef enum {
	ON_START,
	ON_BEFORE_SHUTDOWN,
	ON_SHUTDOWN,
	ON_MANAGER_START,
	ON_MANAGER_STOP,
	ON_WORKER_START,
	ON_WORKER_STOP,
	ON_WORKER_EXIT,
	ON_BEFORE_RELOAD,
	ON_AFTER_RELOAD,
	ON_CONNECT,
	ON_CLOSE,
	ON_REQUEST,
	/* Scripts may set these callbacks, but they are never called. */
	ON_TASK,
	ON_FINISH,
	ON_WORKER_ERROR,
	EVENTS,
} on_t;

typedef struct {
	zval function;
	zend_fcall_info info;
	zend_fcall_info_cache cache;
	bool set;
} callback_t;

extern callback_t howdah_swoole_callbacks[EVENTS];
/* The one server of this process, kept from its creation until the process exits. */
extern zval howdah_swoole_the_server;
extern uint64_t howdah_swoole_worker_number;
extern pid_t howdah_swoole_manager_pid;

/* Sets a property of the server. */
void howdah_swoole_set_number(const char *name, zend_long value);

/* Makes this process the manager. Returns when all workers have exited. */
void howdah_swoole_run(void);

#endif
