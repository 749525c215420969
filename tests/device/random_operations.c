/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random sequences of device operations on several streams, compared with the same operations on
 * host memory. The device's name is the argument, "host" by default; GPUSNAP_SEED picks another
 * course.
 */
#include "formats/base/bytes.h"
#include "tests/device/fixture.h"

enum {
	SEQUENCES = 1000,
	STEPS = 20,
	SLOTS = 4, /* ranges that are mapped and unmapped on their own */
	STREAMS = 3,
	WINDOW = 65536,	  /* bytes at the start of a slot that operations touch */
	ARENA = 4u << 20, /* host side of the copies in flight */
};

static const char *device_name = "host";

struct world {
	struct fixture f;
	uint64_t random;
	gpusnap_address region;
	bool mapped[SLOTS];
	uint8_t *model[SLOTS]; /* what the windows must hold */
	struct gsn_stream *streams[STREAMS];
	struct gsn_event *event;
	int current; /* stream of the operation before */
	uint8_t *arena;
	uint64_t arena_used;
	/* Device-to-host copies and digests in flight, with what they must give. */
	struct {
		uint8_t *got;
		uint8_t *expected;
		uint64_t bytes;
	} pending[STEPS];
	int pending_count;
};

static uint64_t below(struct world *w, uint64_t limit)
{
	return random_below(&w->random, limit);
}

static gpusnap_address slot_address(const struct world *w, int slot)
{
	return w->region + (uint64_t)slot * w->f.granule;
}

/* Small sizes are as likely as large ones. */
static uint64_t some_size(struct world *w, uint64_t most)
{
	return gsn_min(most, below(w, UINT64_C(2) << below(w, 17)));
}

static int some_mapped_slot(struct world *w)
{
	int slot = (int)below(w, SLOTS);

	for (int i = 0; i < SLOTS; i++, slot = (slot + 1) % SLOTS)
		if (w->mapped[slot])
			return slot;
	return -1;
}

static uint8_t *take_arena(struct world *w, uint64_t bytes)
{
	uint8_t *memory = w->arena + w->arena_used;

	w->arena_used += gsn_align_up(bytes, 16);
	ck_assert_uint_le(w->arena_used, ARENA);
	return memory;
}

static void expect(struct world *w, uint8_t *got, const void *expected, uint64_t bytes)
{
	uint8_t *copy = take_arena(w, bytes);

	memcpy(copy, expected, bytes);
	w->pending[w->pending_count].got = got;
	w->pending[w->pending_count].expected = copy;
	w->pending[w->pending_count++].bytes = bytes;
}

/* A stream whose work comes after all that was given so far. */
static struct gsn_stream *next_stream(struct world *w)
{
	int next = (int)below(w, STREAMS);
	gpusnap_error err;

	if (next != w->current) {
		ck_ok(w->f.ops->event_record(w->event, w->streams[w->current], &err));
		ck_ok(w->f.ops->stream_wait(w->streams[next], w->event, &err));
	}
	w->current = next;
	return w->streams[next];
}

static void settle(struct world *w)
{
	gpusnap_error err;

	ck_ok(w->f.ops->stream_sync(w->streams[w->current], &err));
	for (int i = 0; i < w->pending_count; i++)
		ck_same(w->pending[i].got, w->pending[i].expected, w->pending[i].bytes);
	w->pending_count = 0;
	w->arena_used = 0;
	for (int slot = 0; slot < SLOTS; slot++)
		if (w->mapped[slot])
			ck_device_holds(&w->f, slot_address(w, slot), w->model[slot], WINDOW);
}

static void flip_mapping(struct world *w)
{
	int slot = (int)below(w, SLOTS);

	settle(w);
	if (w->mapped[slot])
		unmap(&w->f, slot_address(w, slot), 1);
	else
		map(&w->f, slot_address(w, slot), 1);
	w->mapped[slot] = !w->mapped[slot];
	memset(w->model[slot], 0, WINDOW);
}

static void do_fill(struct world *w, int slot)
{
	uint64_t bytes = some_size(w, WINDOW);
	uint64_t at = below(w, WINDOW - bytes + 1);
	uint8_t value = (uint8_t)below(w, 256);
	gpusnap_error err;

	memset(w->model[slot] + at, value, bytes);
	ck_ok(w->f.ops->fill(next_stream(w), slot_address(w, slot) + at, value, bytes, &err));
}

static void do_upload(struct world *w, int slot)
{
	uint64_t bytes = some_size(w, WINDOW);
	uint64_t at = below(w, WINDOW - bytes + 1);
	uint8_t *data = take_arena(w, bytes);
	gpusnap_error err;

	random_fill(&w->random, data, bytes);
	memcpy(w->model[slot] + at, data, bytes);
	ck_ok(w->f.ops->copy(next_stream(w), GSN_HOST_TO_DEVICE, slot_address(w, slot) + at,
		gsn_host_address(data), bytes, &err));
}

static void do_download(struct world *w, int slot)
{
	uint64_t bytes = some_size(w, WINDOW);
	uint64_t at = below(w, WINDOW - bytes + 1);
	uint8_t *got = take_arena(w, bytes);
	gpusnap_error err;

	expect(w, got, w->model[slot] + at, bytes);
	ck_ok(w->f.ops->copy(next_stream(w), GSN_DEVICE_TO_HOST, gsn_host_address(got),
		slot_address(w, slot) + at, bytes, &err));
}

/* Rows from the lower half of one window to the upper half of another, or of the same. */
static void do_strided(struct world *w, int slot)
{
	int to = some_mapped_slot(w);
	uint64_t half = WINDOW / 2;
	struct gsn_strided_copy copy = {.rows = 1 + below(w, 40), .row_bytes = some_size(w, 600)};
	gpusnap_error err;

	copy.src_stride = copy.row_bytes + below(w, 200);
	copy.dst_stride = copy.row_bytes + below(w, 200);
	copy.src = slot_address(w, slot);
	copy.dst = slot_address(w, to) + half;
	for (uint64_t row = 0; row < copy.rows; row++)
		memcpy(w->model[to] + half + row * copy.dst_stride,
			w->model[slot] + row * copy.src_stride, copy.row_bytes);
	ck_ok(w->f.ops->copy_strided(next_stream(w), GSN_DEVICE_TO_DEVICE, &copy, &err));
}

static void do_digest(struct world *w, int slot)
{
	uint64_t bytes = 1 + some_size(w, WINDOW - 1);
	uint64_t at = below(w, WINDOW - bytes + 1);
	uint8_t *got = take_arena(w, sizeof(gpusnap_digest));
	gpusnap_digest expected = gpusnap_digest_of(w->model[slot] + at, bytes);
	struct gsn_leaf_range range = {
		slot_address(w, slot) + at, bytes, (gpusnap_digest *)(void *)got};
	gpusnap_error err;

	expect(w, got, &expected, sizeof expected);
	ck_ok(w->f.ops->digest(next_stream(w), &range, 1, &err));
}

static void step(struct world *w)
{
	static void (*const operations[])(struct world *, int) = {
		do_fill, do_upload, do_download, do_strided, do_digest};
	int slot = some_mapped_slot(w);

	if (slot < 0 || below(w, 10) == 0)
		flip_mapping(w);
	else
		operations[below(w, sizeof operations / sizeof operations[0])](w, slot);
}

static struct world open_world(uint64_t seed)
{
	struct world w = {.f = fixture_open(device_name), .random = seed};
	gpusnap_error err;
	void *arena;

	ck_assert_uint_ge(w.f.granule, WINDOW);
	w.region = reserve(&w.f, SLOTS);
	for (int i = 0; i < SLOTS; i++)
		w.model[i] = host_memory(WINDOW);
	for (int i = 0; i < STREAMS; i++)
		w.streams[i] = new_stream(&w.f);
	w.event = new_event(&w.f);
	ck_ok(w.f.ops->pinned_alloc(w.f.context, ARENA, &arena, &err));
	w.arena = arena;
	return w;
}

static void close_world(struct world *w)
{
	w->f.ops->pinned_free(w->f.context, w->arena, ARENA);
	w->f.ops->event_destroy(w->event);
	for (int i = 0; i < STREAMS; i++)
		w->f.ops->stream_destroy(w->streams[i]);
	for (int i = 0; i < SLOTS; i++)
		free(w->model[i]);
	release(&w->f, w->region, SLOTS);
	fixture_close(&w->f);
}

START_TEST(random_sequences_leave_what_the_model_says)
{
	struct world w = open_world(random_seed(2024));

	for (int sequence = 0; sequence < SEQUENCES; sequence++) {
		for (int i = 0; i < STEPS; i++)
			step(&w);
		settle(&w);
	}
	close_world(&w);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {random_sequences_leave_what_the_model_says};

	if (argc > 1)
		device_name = argv[1];
	if (!device_is_there(device_name))
		return 77;
	(void)printf("seed %" PRIu64 "\n", random_seed(2024));
	(void)fflush(stdout);
	return RUN_SUITE("random_operations", tests);
}
