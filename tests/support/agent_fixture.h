/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_AGENT_FIXTURE_H
#define GPUSNAP_TEST_AGENT_FIXTURE_H
/* An agent over a small registry in a folder of its own, and a client that sends raw bytes. */
#include <limits.h>
#include <stddef.h>

#include <gpusnap/agent.h>

#include "snapshot/agent_state.h"
#include "tests/support/suite.h"

struct agent_fixture {
	char folder[PATH_MAX];
	char path[96]; /* of the socket */
	gpusnap_device *device;
	gpusnap_registry *registry; /* region 1 "weights", buffer "w" of 8 bytes "content" */
	gpusnap_agent *agent;
};

/* run_suite() with a folder for all sockets, gone afterwards whatever has failed. */
int agent_run_suite(const char *name, const TTest *const *tests, size_t count);
#define AGENT_SUITE(name, tests)                                                                   \
	agent_run_suite((name), (tests), sizeof(tests) / sizeof((tests)[0]))

/* NULL limits: the documented ones. */
void agent_open(struct agent_fixture *f, const struct gsn_agent_limits *limits);
/* Stops the agent (where a test has not), removes the folder, which must be empty by then. */
void agent_close(struct agent_fixture *f);

/* A connection; -1 with errno when nobody listens. Reads give up after 20 seconds. */
int raw_connect(const char *path);
/* Send all of it; false when the other side has hung up. */
bool raw_send(int fd, const void *bytes, size_t length);
bool raw_say(int fd, const char *text);
/* One line without its newline, valid until the next call; NULL at the end of the stream. */
const char *raw_line(int fd);
/* The next line is an answer that reports `status`, or OK; its message contains `text`. */
void raw_expect(int fd, gpusnap_status status, const char *text);
/* Nothing more comes: the agent has hung up. */
void raw_expect_end(int fd);
/* ping works: the agent is alive. */
void agent_expect_alive(const struct agent_fixture *f);

#endif
