/* What the kernel takes to send an answer over loopback, by each way to hand it the bytes.
 *
 *     cc -O2 -pthread -o send-cost scripts/send-cost.c && ./send-cost [BYTES [ROUNDS]]
 *
 * A server's thread answers 30 000 requests of one connection with a head of 300 bytes and a body of BYTES (41000
 * by default): by sendmsg(2), by sendfile(2) from a memory file, by sendmsg(2) with MSG_ZEROCOPY. Prints the CPU time
 * of the server's thread for an answer, which on loopback has the receiver's part of TCP in it, and the rate;
 * the ways take turns, ROUNDS times (8). */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define HEAD 300
#define ANSWERS 30000

static size_t length = 41000;
static char *body, head[HEAD], request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
static int file, way;
static double used;

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void send_all(int to, int flags)
{
	for (size_t done = 0; done < HEAD + length;) {
		struct iovec parts[2] = {{head, HEAD}, {body, length}};
		if (done < HEAD) {
			parts[0].iov_base = head + done;
			parts[0].iov_len = HEAD - done;
		} else {
			parts[0].iov_len = 0;
			parts[1].iov_base = body + (done - HEAD);
			parts[1].iov_len = length - (done - HEAD);
		}
		ssize_t n = sendmsg(to, &(struct msghdr){.msg_iov = parts, .msg_iovlen = 2}, flags);
		must(n > 0, "sendmsg");
		done += (size_t)n;
	}
}

static void *serve(void *socket)
{
	int to = *(int *)socket;
	char asked[4096], notice[256];
	double begun = seconds(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < ANSWERS; i++) {
		must(recv(to, asked, sizeof(asked), 0) > 0, "recv");
		if (way == 1) {
			off_t at = 0;
			must(send(to, head, HEAD, MSG_MORE) == HEAD, "send");
			while (at < (off_t)length) {
				must(sendfile(to, file, &at, length - (size_t)at) > 0, "sendfile");
			}
		} else {
			send_all(to, way == 2 ? MSG_ZEROCOPY : 0);
			if (way == 2) {
				struct msghdr notices = {.msg_control = notice, .msg_controllen = sizeof(notice)};
				recvmsg(to, &notices, MSG_ERRQUEUE | MSG_DONTWAIT);
			}
		}
	}
	used = seconds(CLOCK_THREAD_CPUTIME_ID) - begun;
	return NULL;
}

static void measure(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	must(bind(listener, (void *)&at, size) == 0 && listen(listener, 1) == 0, "listen");
	getsockname(listener, (void *)&at, &size);
	must(connect(client, (void *)&at, size) == 0, "connect");
	int server = accept(listener, NULL, NULL);
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(server, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof(yes));
	static char got[1 << 17];
	pthread_t thread;
	pthread_create(&thread, NULL, serve, &server);
	double begun = seconds(CLOCK_MONOTONIC);
	for (int i = 0; i < ANSWERS; i++) {
		must(send(client, request, sizeof(request) - 1, 0) > 0, "send");
		for (size_t have = 0; have < HEAD + length;) {
			ssize_t n = recv(client, got, sizeof(got), 0);
			must(n > 0, "recv");
			have += (size_t)n;
		}
	}
	double took = seconds(CLOCK_MONOTONIC) - begun;
	pthread_join(thread, NULL);
	printf("%-13s %6.2f us %8.0f/s\n", (const char *[]){"sendmsg", "sendfile", "MSG_ZEROCOPY"}[way], used / ANSWERS * 1e6,
	       ANSWERS / took);
	close(client);
	close(server);
	close(listener);
}

int main(int argc, char **argv)
{
	length = argc > 1 ? (size_t)atol(argv[1]) : length;
	int rounds = argc > 2 ? atoi(argv[2]) : 8;
	body = mmap(NULL, length + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(body, 'b', length);
	memset(head, 'h', HEAD);
	file = memfd_create("body", 0);
	must(write(file, body, length) == (ssize_t)length, "write");
	for (int round = 0; round < rounds; round++) {
		for (way = 0; way < 3; way++) {
			measure();
		}
	}
}
