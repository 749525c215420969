/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "formats/base/fail.h"
#include "snapshot/io_options.h"
#include "snapshot/ring_state.h"
#include "tests/support/refuse_syscalls.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { FILE_BYTES = 1 << 20, BLOCK = 64 << 10, DEPTH = 4 };

static char folder[PATH_MAX];

static const struct {
	gpusnap_io_engine engine;
	bool direct;
	bool registered;
} modes[] = {
	{GPUSNAP_IO_URING, false, false},
	{GPUSNAP_IO_URING, false, true},
	{GPUSNAP_IO_URING, true, false},
	{GPUSNAP_IO_URING, true, true},
	{GPUSNAP_IO_AIO, true, false},
	{GPUSNAP_IO_THREADS, false, false},
	{GPUSNAP_IO_THREADS, true, true},
};
enum { MODE_COUNT = sizeof modes / sizeof modes[0] };

static gpusnap_io_options options_of(gpusnap_io_engine engine)
{
	gpusnap_io_options options = GPUSNAP_IO_OPTIONS_INIT, resolved;
	gpusnap_error err;

	options.engine = engine;
	options.depth = DEPTH;
	options.block_bytes = BLOCK;
	ck_ok(gsn_io_options_resolve(&options, &resolved, &err));
	return resolved;
}

static int open_file(const char *name, bool direct)
{
	char path[PATH_MAX];
	int fd;

	tempdir_join(path, folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static uint8_t *map_memory(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

static void fill(uint8_t *bytes, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++) {
		seed = seed * 1664525u + 1013904223u;
		bytes[i] = (uint8_t)(seed >> 24);
	}
}

/* Move the whole file, block by block, keeping the ring full. */
static void move_file(struct gsn_ring *ring, enum gsn_ring_op op, int fd, uint8_t *memory)
{
	struct gsn_ring_completion completion;
	gpusnap_error err;
	uint64_t next = 0, finished = 0;

	while (finished < FILE_BYTES) {
		if (next < FILE_BYTES && gsn_ring_in_flight(ring) < DEPTH) {
			struct gsn_ring_request request = {
				op, fd, memory + next, BLOCK, next, memory + next};

			ck_ok(gsn_ring_submit(ring, &request, &err));
			next += BLOCK;
			continue;
		}
		ck_ok(gsn_ring_wait(ring, &completion, &err));
		ck_assert_int_eq(completion.status, GPUSNAP_OK);
		ck_assert_uint_eq(completion.done, BLOCK);
		finished += completion.done;
	}
}

START_TEST(what_is_written_is_read_back)
{
	gpusnap_io_options options = options_of(modes[_i].engine);
	int fd = open_file("round", modes[_i].direct);
	uint8_t *memory = map_memory((size_t)2 * FILE_BYTES);
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_ok(gsn_ring_open(&options, fd, modes[_i].registered ? memory : NULL,
		(uint64_t)2 * FILE_BYTES, &ring, &report, &err));
	ck_assert_int_eq(report.direct, modes[_i].direct);
	ck_assert_str_eq(report.engine, gpusnap_io_engine_name(modes[_i].engine));
	ck_assert_str_eq(report.reason, "it was asked for");
	if (!modes[_i].registered)
		ck_assert(!report.registered);
	fill(memory, FILE_BYTES, (uint32_t)_i + 1);
	move_file(ring, GSN_RING_WRITE, fd, memory);
	move_file(ring, GSN_RING_READ, fd, memory + FILE_BYTES);
	ck_assert_int_eq(memcmp(memory, memory + FILE_BYTES, FILE_BYTES), 0);
	ck_assert(gsn_ring_close(ring));
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(read_over_the_end_gives_what_is_there)
{
	gpusnap_io_options options = options_of(modes[_i].engine);
	int fd = open_file("tail", modes[_i].direct);
	uint8_t *memory = map_memory(BLOCK);
	gpusnap_io_report report = {0};
	struct gsn_ring_request request = {GSN_RING_READ, fd, memory, BLOCK, 4096, &request};
	struct gsn_ring_completion completion;
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_assert_int_eq(ftruncate(fd, 10000), 0);
	ck_ok(gsn_ring_open(&options, fd, memory, BLOCK, &ring, &report, &err));
	ck_ok(gsn_ring_submit(ring, &request, &err));
	ck_ok(gsn_ring_wait(ring, &completion, &err));
	ck_assert_ptr_eq(completion.tag, &request);
	ck_assert_int_eq(completion.status, GPUSNAP_OK);
	ck_assert_uint_eq(completion.done, 10000 - 4096);
	ck_assert(gsn_ring_close(ring));
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(a_failed_request_brings_its_errno)
{
	gpusnap_io_options options = options_of(modes[_i].engine);
	int fd = open_file("failed", modes[_i].direct);
	uint8_t *memory = map_memory(BLOCK);
	gpusnap_io_report report = {0};
	struct gsn_ring_request request = {GSN_RING_READ, -1, memory, BLOCK, 0, NULL};
	struct gsn_ring_completion completion;
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_ok(gsn_ring_open(&options, fd, memory, BLOCK, &ring, &report, &err));
	ck_ok(gsn_ring_submit(ring, &request, &err));
	ck_ok(gsn_ring_wait(ring, &completion, &err));
	ck_assert_int_eq(completion.status, GPUSNAP_E_IO);
	ck_assert_int_eq(completion.os_errno, EBADF);
	ck_assert(gsn_ring_close(ring));
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(more_than_the_depth_is_refused)
{
	gpusnap_io_options options = options_of(modes[_i].engine);
	int fd = open_file("depth", modes[_i].direct);
	uint8_t *memory = map_memory(BLOCK);
	gpusnap_io_report report = {0};
	struct gsn_ring_request request = {GSN_RING_READ, fd, memory, 4096, 0, NULL};
	struct gsn_ring_completion completion;
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_ok(gsn_ring_open(&options, fd, memory, BLOCK, &ring, &report, &err));
	ck_fails(gsn_ring_wait(ring, &completion, &err), GPUSNAP_E_STATE, "nothing is in flight");
	for (int i = 0; i < DEPTH; i++)
		ck_ok(gsn_ring_submit(ring, &request, &err));
	ck_fails(gsn_ring_submit(ring, &request, &err), GPUSNAP_E_LIMIT, "4 requests");
	ck_assert(gsn_ring_close(ring)); /* waits for the four */
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

/* An engine that answers from a script, to see what the ring makes of it. */
static struct script {
	int64_t results[80];
	uint32_t asked; /* parts submitted so far */
	struct gsn_ring_part parts[80];
	struct gsn_ring_slot *slot;
	unsigned refusals; /* reaps that are refused before one is not */
	unsigned reaped;
	bool drains; /* closing waits */
} script;

static gpusnap_status script_open(struct gsn_ring *ring, int probe_fd, gpusnap_error *err)
{
	(void)ring;
	(void)probe_fd;
	(void)err;
	return GPUSNAP_OK;
}

static bool script_close(struct gsn_ring *ring)
{
	(void)ring;
	return script.drains;
}

static bool script_register(struct gsn_ring *ring, void *memory, uint64_t bytes)
{
	(void)ring;
	return memory && bytes;
}

static gpusnap_status script_submit(
	struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err)
{
	(void)ring;
	(void)err;
	ck_assert_uint_lt(script.asked, 80);
	script.parts[script.asked++] = gsn_ring_part(slot);
	script.slot = slot;
	return GPUSNAP_OK;
}

static gpusnap_status script_reap(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
	int64_t *ret_result, gpusnap_error *err)
{
	(void)ring;
	if (script.refusals) {
		script.refusals--;
		return gsn_fail(err, GPUSNAP_E_NOMEM, "refused");
	}
	script.reaped++;
	*ret_slot = script.slot;
	*ret_result = script.results[script.asked - 1];
	return GPUSNAP_OK;
}

static const struct gsn_ring_engine script_engine = {
	"script", script_open, script_close, script_register, script_submit, script_reap};

static struct gsn_ring_completion play(enum gsn_ring_op op, int fd, uint64_t length)
{
	static uint8_t base[1]; /* parts are only counted, never touched */
	gpusnap_io_options options = options_of(GPUSNAP_IO_AUTO);
	struct gsn_ring_request request = {op, fd, base, length, 0, NULL};
	struct gsn_ring_completion completion;
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_ok(gsn_ring_open_engine(&script_engine, &options, fd, NULL, 0, &ring, &report, &err));
	ck_ok(gsn_ring_submit(ring, &request, &err));
	ck_ok(gsn_ring_wait(ring, &completion, &err));
	ck_assert(gsn_ring_close(ring));
	return completion;
}

/* Close with three requests in flight. */
static bool close_under_way(unsigned refusals, bool drains)
{
	static uint8_t base[1];
	gpusnap_io_options options = options_of(GPUSNAP_IO_AUTO);
	int fd = open_file("under way", false);
	struct gsn_ring_request request = {GSN_RING_READ, fd, base, 1, 0, NULL};
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;
	bool drained;

	script = (struct script){.refusals = refusals, .drains = drains};
	ck_ok(gsn_ring_open_engine(&script_engine, &options, fd, NULL, 0, &ring, &report, &err));
	for (int i = 0; i < 3; i++)
		ck_ok(gsn_ring_submit(ring, &request, &err));
	drained = gsn_ring_close(ring);
	ck_assert_int_eq(close(fd), 0);
	return drained;
}

START_TEST(a_ring_is_not_closed_under_requests_that_cannot_be_reaped_just_now)
{
	ck_assert(close_under_way(1, false));
	ck_assert_uint_eq(script.reaped, 3);
	ck_assert(close_under_way(100, false));
	ck_assert_uint_eq(script.reaped, 3);
}
END_TEST

START_TEST(requests_that_are_never_reaped_are_told_of_unless_closing_waits_for_them)
{
	ck_assert(!close_under_way(100000, false));
	ck_assert_uint_eq(script.reaped, 0);
	ck_assert(close_under_way(100000, true));
}
END_TEST

START_TEST(a_short_transfer_is_resumed_where_it_stopped)
{
	int fd = open_file("short", false);
	struct gsn_ring_completion completion;

	script = (struct script){.results = {1, 4095, -EINTR, -EAGAIN, 10000, 1904}};
	completion = play(GSN_RING_WRITE, fd, 16000);
	ck_assert_int_eq(completion.status, GPUSNAP_OK);
	ck_assert_uint_eq(completion.done, 16000);
	ck_assert_uint_eq(script.asked, 6);
	ck_assert_uint_eq(script.parts[1].offset, 1);
	ck_assert_uint_eq(script.parts[2].offset, 4096);
	ck_assert_uint_eq(script.parts[4].offset, 4096);
	ck_assert_uint_eq(script.parts[5].offset, 14096);
	ck_assert_uint_eq(script.parts[5].length, 1904);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(a_short_direct_transfer_is_resumed_on_a_boundary)
{
	int fd = open_file("short-direct", true);
	struct gsn_ring_completion completion;

	script = (struct script){.results = {5000, 8191, 57344}};
	completion = play(GSN_RING_WRITE, fd, 65536);
	ck_assert_int_eq(completion.status, GPUSNAP_OK);
	ck_assert_uint_eq(completion.done, 65536);
	ck_assert_uint_eq(script.parts[1].offset, 4096);
	ck_assert_uint_eq(script.parts[1].length, 61440);
	ck_assert_uint_eq(script.parts[2].offset, 8192);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(no_progress_is_an_error)
{
	int fd = open_file("stuck", true);
	struct gsn_ring_completion completion;

	script = (struct script){.results = {4096, 0}};
	completion = play(GSN_RING_WRITE, fd, 65536);
	ck_assert_int_eq(completion.status, GPUSNAP_E_IO);
	ck_assert_int_eq(completion.os_errno, EIO);
	ck_assert_uint_eq(completion.done, 4096);

	/* Direct, and never a whole block: realigned to where it was each time. */
	script = (struct script){.results = {0}};
	for (int i = 0; i < 80; i++)
		script.results[i] = 100;
	completion = play(GSN_RING_WRITE, fd, 65536);
	ck_assert_int_eq(completion.status, GPUSNAP_E_IO);
	ck_assert_int_eq(completion.os_errno, EIO);

	for (int i = 0; i < 80; i++)
		script.results[i] = -EAGAIN;
	script.asked = 0;
	completion = play(GSN_RING_READ, fd, 65536);
	ck_assert_int_eq(completion.status, GPUSNAP_E_BUSY);
	ck_assert_int_eq(completion.os_errno, EAGAIN);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(an_empty_read_before_the_end_is_an_error)
{
	int fd = open_file("hole", false);
	struct gsn_ring_completion completion;

	ck_assert_int_eq(ftruncate(fd, 100), 0);
	script = (struct script){.results = {50, 0}};
	completion = play(GSN_RING_READ, fd, 200);
	ck_assert_int_eq(completion.status, GPUSNAP_E_IO);
	script = (struct script){.results = {50, 50}};
	completion = play(GSN_RING_READ, fd, 200);
	ck_assert_int_eq(completion.status, GPUSNAP_OK);
	ck_assert_uint_eq(completion.done, 100);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(a_request_over_2_gib_is_split)
{
	int fd = open_file("large", false);
	uint64_t length = UINT64_C(5) << 30;
	struct gsn_ring_completion completion;

	script = (struct script){.results = {0x7ffff000, 0x7ffff000, 0x40002000}};
	completion = play(GSN_RING_WRITE, fd, length);
	ck_assert_int_eq(completion.status, GPUSNAP_OK);
	ck_assert_uint_eq(completion.done, length);
	ck_assert_uint_eq(script.parts[0].length, 0x7ffff000);
	ck_assert_uint_eq(script.parts[2].offset, UINT64_C(0xffffe000));
	ck_assert_uint_eq(script.parts[2].length, 0x40002000);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(an_error_ends_the_request)
{
	int fd = open_file("full", false);
	struct gsn_ring_completion completion;

	script = (struct script){.results = {4096, -ENOSPC}};
	completion = play(GSN_RING_WRITE, fd, 65536);
	ck_assert_int_eq(completion.status, GPUSNAP_E_IO);
	ck_assert_int_eq(completion.os_errno, ENOSPC);
	ck_assert_uint_eq(completion.done, 4096);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

/* As a container's default filter does it, and as a kernel without them. */
static const struct refused {
	bool aio;
	int error;
	const char *engine;
	const char *why[2];
} refused[] = {
	{false, EPERM, "aio", {"io_uring is not available: Operation not permitted", ""}},
	{false, ENOSYS, "aio", {"io_uring is not available: Function not implemented", ""}},
	{true, EPERM, "threads",
		{"io_uring is not available: Operation not permitted, and Linux AIO",
			"Linux AIO is not available: Operation not permitted"}},
	{true, ENOSYS, "threads",
		{"io_uring is not available: Function not implemented, and Linux AIO",
			"Linux AIO is not available: Function not implemented"}},
};
enum { REFUSED_COUNT = sizeof refused / sizeof refused[0] };

START_TEST(the_next_engine_serves_and_the_report_says_why)
{
	const struct refused *r = &refused[_i];
	gpusnap_io_options options = options_of(GPUSNAP_IO_AUTO);
	int fd = open_file("filtered", true);
	uint8_t *memory = map_memory(FILE_BYTES);
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_assert(refuse_syscalls(uring_syscalls, 1, r->error));
	if (r->aio)
		ck_assert(refuse_syscalls(aio_syscalls, 1, r->error));
	ck_ok(gsn_ring_open(&options, fd, memory, FILE_BYTES, &ring, &report, &err));
	ck_assert_str_eq(report.engine, r->engine);
	for (int i = 0; i < 2; i++)
		ck_assert_msg(strstr(report.reason, r->why[i]), "%s", report.reason);
	move_file(ring, GSN_RING_WRITE, fd, memory);
	ck_assert(gsn_ring_close(ring));
	options.engine = GPUSNAP_IO_URING;
	ck_fails(gsn_ring_open(&options, fd, memory, FILE_BYTES, &ring, &report, &err),
		GPUSNAP_E_UNSUPPORTED, "io_uring is not available");
	ck_assert_int_eq(err.os_errno, r->error);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(aio_serves_no_cached_file)
{
	gpusnap_io_options options = options_of(GPUSNAP_IO_AIO);
	int fd = open_file("cached", false);
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_assert_int_eq(options.direct, GPUSNAP_DIRECT_ON);
	ck_fails(gsn_ring_open(&options, fd, NULL, 0, &ring, &report, &err), GPUSNAP_E_UNSUPPORTED,
		"direct I/O only");
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(without_lockable_memory_plain_requests_serve)
{
	gpusnap_io_options options = options_of(GPUSNAP_IO_URING);
	struct rlimit little = {256 << 10, 256 << 10}; /* the ring itself wants some */
	int fd = open_file("unlocked", true);
	uint8_t *memory = map_memory(FILE_BYTES);
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &little), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(setuid(65534), 0); /* root is exempt from the limit */
	ck_ok(gsn_ring_open(&options, fd, memory, FILE_BYTES, &ring, &report, &err));
	ck_assert(!report.registered);
	move_file(ring, GSN_RING_WRITE, fd, memory);
	ck_assert(gsn_ring_close(ring));
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(first_choice_follows_the_file)
{
	gpusnap_io_options options = options_of(GPUSNAP_IO_AUTO);
	int direct = open_file("choice", true), cached = open_file("choice", false);
	gpusnap_io_report report = {0};
	struct gsn_ring *ring;
	gpusnap_error err;

	ck_ok(gsn_ring_open(&options, direct, NULL, 0, &ring, &report, &err));
	ck_assert(gsn_ring_close(ring));
	ck_assert_str_eq(report.engine, "uring");
	ck_ok(gsn_ring_open(&options, cached, NULL, 0, &ring, &report, &err));
	ck_assert(gsn_ring_close(ring));
	ck_assert_str_eq(report.engine, "threads");
	ck_assert_uint_eq(report.depth, DEPTH);
	ck_assert_uint_eq(report.block_bytes, BLOCK);
	ck_assert_int_eq(close(direct), 0);
	ck_assert_int_eq(close(cached), 0);
}
END_TEST

START_TEST(options_have_defaults_names_and_limits)
{
	gpusnap_io_options options = GPUSNAP_IO_OPTIONS_INIT, resolved;
	gpusnap_io_engine engine;
	gpusnap_io_direct direct;
	gpusnap_error err;

	ck_ok(gsn_io_options_resolve(NULL, &resolved, &err));
	ck_assert_uint_eq(resolved.depth, 8);
	ck_assert_uint_eq(resolved.block_bytes, 4 << 20);
	options.block_bytes = 100000;
	ck_ok(gsn_io_options_resolve(&options, &resolved, &err));
	ck_assert_uint_eq(resolved.block_bytes, 131072);
	options.depth = 1025;
	ck_fails(gsn_io_options_resolve(&options, &resolved, &err), GPUSNAP_E_LIMIT, "1025");
	options.depth = 0;
	options.block_bytes = (64 << 20) + 1;
	ck_fails(gsn_io_options_resolve(&options, &resolved, &err), GPUSNAP_E_LIMIT, "67108865");
	options.block_bytes = 0;
	options.engine = (gpusnap_io_engine)9;
	ck_fails(gsn_io_options_resolve(&options, &resolved, &err), GPUSNAP_E_INVALID, "engine 9");
	options.engine = GPUSNAP_IO_AIO;
	options.direct = GPUSNAP_DIRECT_OFF;
	ck_fails(gsn_io_options_resolve(&options, &resolved, &err), GPUSNAP_E_INVALID,
		"engine aio serves direct I/O only");
	ck_ok(gpusnap_io_engine_parse("uring", &engine, &err));
	ck_assert_int_eq(engine, GPUSNAP_IO_URING);
	ck_ok(gpusnap_io_engine_parse("aio", &engine, &err));
	ck_assert_int_eq(engine, GPUSNAP_IO_AIO);
	ck_assert_ptr_null(gpusnap_io_engine_name((gpusnap_io_engine)9));
	ck_assert_str_eq(gpusnap_io_direct_name(GPUSNAP_DIRECT_OFF), "off");
	ck_assert_ptr_null(gpusnap_io_direct_name((gpusnap_io_direct)9));
	ck_fails(gpusnap_io_engine_parse("aio2", &engine, &err), GPUSNAP_E_INVALID, "'aio2'");
	ck_ok(gpusnap_io_direct_parse("off", &direct, &err));
	ck_assert_int_eq(direct, GPUSNAP_DIRECT_OFF);
	ck_fails(gpusnap_io_direct_parse("", &direct, &err), GPUSNAP_E_INVALID, "''");
}
END_TEST

START_TEST(probe_of_a_folder_answers_and_leaves_nothing)
{
	char probed[PATH_MAX];
	gpusnap_io_report report;
	gpusnap_error err;

	tempdir_make(probed, NULL);
	ck_ok(gpusnap_io_probe(probed, NULL, &report, &err));
	ck_assert_ptr_nonnull(report.engine);
	ck_assert_str_ne(report.reason, "");
	ck_assert_str_ne(report.file_system, "");
	ck_assert_int_eq(report.direct, report.alignment > 0);
	ck_assert_int_eq(report.direct, report.alignment_source[0] != 0);
	ck_assert_int_eq(tempdir_count(probed), 0);
	tempdir_remove(probed);
	ck_fails(gpusnap_io_probe(probed, NULL, &report, &err), GPUSNAP_E_IO, probed);
}
END_TEST

START_TEST(memory_file_systems_are_used_cached)
{
	gpusnap_io_options options = GPUSNAP_IO_OPTIONS_INIT;
	char probed[PATH_MAX];
	gpusnap_io_report report;
	gpusnap_error err;

	tempdir_make(probed, "/dev/shm");
	ck_ok(gpusnap_io_probe(probed, &options, &report, &err));
	ck_assert(!report.direct);
	ck_assert_uint_eq(report.alignment, 0);
	ck_assert_str_eq(report.file_system, "tmpfs");
	ck_assert_str_eq(report.reason, "it passed its probe; tmpfs is better used cached");
	options.direct = GPUSNAP_DIRECT_ON;
	ck_fails(gpusnap_io_probe(probed, &options, &report, &err), GPUSNAP_E_UNSUPPORTED,
		"tmpfs keeps files in memory");
	tempdir_remove(probed);
}
END_TEST

static SRunner *make_runner(void)
{
	const TTest *const per_mode[] = {
		what_is_written_is_read_back,
		read_over_the_end_gives_what_is_there,
		a_failed_request_brings_its_errno,
		more_than_the_depth_is_refused,
	};
	const TTest *const once[] = {
		a_ring_is_not_closed_under_requests_that_cannot_be_reaped_just_now,
		requests_that_are_never_reaped_are_told_of_unless_closing_waits_for_them,
		a_short_transfer_is_resumed_where_it_stopped,
		a_short_direct_transfer_is_resumed_on_a_boundary,
		no_progress_is_an_error,
		an_empty_read_before_the_end_is_an_error,
		a_request_over_2_gib_is_split,
		an_error_ends_the_request,
		aio_serves_no_cached_file,
		without_lockable_memory_plain_requests_serve,
		first_choice_follows_the_file,
		options_have_defaults_names_and_limits,
		probe_of_a_folder_answers_and_leaves_nothing,
		memory_file_systems_are_used_cached,
	};
	Suite *suite = suite_create("ring");
	TCase *cases = tcase_create("ring");

	for (size_t i = 0; i < sizeof per_mode / sizeof per_mode[0]; i++)
		tcase_add_loop_test(cases, per_mode[i], 0, MODE_COUNT);
	tcase_add_loop_test(
		cases, the_next_engine_serves_and_the_report_says_why, 0, REFUSED_COUNT);
	for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
		tcase_add_test(cases, once[i]);
	suite_add_tcase(suite, cases);
	return srunner_create(suite);
}

int main(void)
{
	SRunner *runner;
	int failed;

	tempdir_make(folder, NULL);
	runner = make_runner();
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	tempdir_remove(folder);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
