/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offload to the arena and resume: content, policies, callbacks, states, and what every single
 * failure leaves behind. Snapshot-backed offload is in unit.offload_to_file.
 */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "formats/base/fail.h"
#include "snapshot/registry_state.h"
#include "tests/support/state_fixture.h"

static gpusnap_offload_options tagged(const char *const *tags, size_t count)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;

	options.tags = tags;
	options.tag_count = count;
	return options;
}

static void offload_all(struct state *state, gpusnap_offload_report *report)
{
	gpusnap_error err;

	ck_ok(gpusnap_offload(state->registry, NULL, report, &err));
	state_expect(state, GPUSNAP_REGION_OFFLOADED);
}

static void resume_all(struct state *state)
{
	gpusnap_resume_report report;
	gpusnap_error err;

	ck_ok(gpusnap_resume(state->registry, NULL, &report, &err));
	ck_assert_uint_eq(report.regions, STATE_REGIONS);
	ck_assert_uint_eq(report.bytes, (uint64_t)STATE_REGIONS * STATE_REGION_BYTES);
}

static void check_content(const struct state *state)
{
	state_expect(state, GPUSNAP_REGION_RESIDENT);
	for (size_t r = 0; r < STATE_REGIONS; r++)
		state_check(state, r);
}

/* ---- content ---- */

START_TEST(offload_gives_memory_back_and_resume_returns_every_byte)
{
	struct state state;
	gpusnap_offload_report report;
	gpusnap_region_info before, after;
	gpusnap_error err;
	char byte;

	state_open(&state, NULL, NULL);
	before = state_info(&state, 0);
	offload_all(&state, &report);
	ck_assert_uint_eq(report.regions, 2);
	ck_assert_uint_eq(report.bytes, (uint64_t)STATE_REGIONS * STATE_REGION_BYTES);
	ck_assert_uint_eq(report.copied_bytes, report.bytes);
	ck_assert_str_eq(report.backing, "arena");
	ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
	after = state_info(&state, 0);
	ck_assert_uint_eq(after.address, before.address);
	ck_assert_uint_eq(after.resident_bytes, 0);
	ck_assert_str_eq(after.backing, "arena");
	ck_fails(gpusnap_buffer_read(state.registry, "w0", 0, &byte, 1, &err), GPUSNAP_E_STATE,
		"region 1 'first' is offloaded: not resident; resume or restore first");
	resume_all(&state);
	check_content(&state);
	after = state_info(&state, 0);
	ck_assert_uint_eq(after.address, before.address);
	ck_assert_uint_eq(after.generation, before.generation + 1);
	ck_assert_ptr_null(after.backing);
	ck_assert_uint_eq(state.faulty.mapped_bytes, report.bytes);
	state_close(&state);
}
END_TEST

START_TEST(second_offload_copies_only_changed_leaves)
{
	struct state state;
	gpusnap_offload_report report;

	state_open(&state, NULL, NULL);
	offload_all(&state, &report);
	resume_all(&state);
	offload_all(&state, &report);
	ck_assert_uint_eq(report.copied_bytes, 0);
	ck_assert_uint_eq(report.bytes, (uint64_t)STATE_REGIONS * STATE_REGION_BYTES);
	resume_all(&state);
	check_content(&state);

	/* The last leaf of w1 has 17 bytes; the raw range after it has leaves of its own. */
	state_bytes(&state, 1)[STATE_BUFFER_OFFSET + STATE_BUFFER_BYTES - 1] ^= 0x10;
	state_bytes(&state, 0)[STATE_BUFFER_OFFSET] ^= 0x01;
	offload_all(&state, &report);
	ck_assert_uint_eq(report.copied_bytes, 65536 + 17);
	resume_all(&state);
	state_bytes(&state, 1)[STATE_BUFFER_OFFSET + STATE_BUFFER_BYTES - 1] ^= 0x10;
	state_bytes(&state, 0)[STATE_BUFFER_OFFSET] ^= 0x01;
	check_content(&state);

	state_fill(&state, 2);
	offload_all(&state, &report);
	ck_assert_uint_eq(report.copied_bytes, report.bytes);
	resume_all(&state);
	check_content(&state);
	state_close(&state);
}
END_TEST

START_TEST(changed_layout_makes_a_new_arena)
{
	struct state state;
	gpusnap_offload_report report;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	offload_all(&state, &report);
	resume_all(&state);
	ck_ok(gpusnap_buffer_unregister(state.registry, "w1", &err));
	offload_all(&state, &report);
	ck_assert_uint_eq(report.copied_bytes, STATE_REGION_BYTES);
	ck_assert_uint_eq(state.faulty.pinned_blocks, 2 + (state.registry->staging.kept != NULL));
	resume_all(&state);
	check_content(&state);
	state_close(&state);
}
END_TEST

START_TEST(tags_choose_regions)
{
	struct state state;
	static const char *const second[] = {"second"};
	static const char *const unknown[] = {"second", "third"};
	gpusnap_offload_options options = tagged(second, 1);
	gpusnap_offload_options bad = tagged(unknown, 2);
	gpusnap_offload_options none = tagged(second, 0);
	gpusnap_offload_report report;
	gpusnap_resume_report resumed;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	ck_fails(gpusnap_offload(state.registry, &bad, &report, &err), GPUSNAP_E_STATE,
		"no region has tag 'third'");
	ck_fails(gpusnap_offload(state.registry, &none, &report, &err), GPUSNAP_E_STATE,
		"none of them matches");
	ck_ok(gpusnap_offload(state.registry, &options, &report, &err));
	ck_assert_uint_eq(report.regions, 1);
	ck_assert_int_eq(state_info(&state, 0).state, GPUSNAP_REGION_RESIDENT);
	ck_assert_int_eq(state_info(&state, 1).state, GPUSNAP_REGION_OFFLOADED);
	ck_fails(gpusnap_offload(state.registry, NULL, &report, &err), GPUSNAP_E_STATE,
		"region 2 'second' is offloaded already");
	ck_assert_int_eq(state_info(&state, 0).state, GPUSNAP_REGION_RESIDENT);
	options.tags = (const char *const[]){"first"};
	ck_fails(gpusnap_resume(state.registry, &options, &resumed, &err), GPUSNAP_E_STATE,
		"region 1 'first' is resident: nothing to resume");
	ck_ok(gpusnap_resume(state.registry, NULL, &resumed, &err));
	ck_assert_uint_eq(resumed.regions, 1);
	check_content(&state);
	ck_fails(gpusnap_resume(state.registry, NULL, &resumed, &err), GPUSNAP_E_STATE,
		"nothing is offloaded");
	state_close(&state);
}
END_TEST

START_TEST(adopted_regions_stay_where_they_are)
{
	struct state state;
	static uint8_t memory[100];
	static const char *const tags[] = {"mine"};
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_offload_options named = tagged(tags, 1);
	gpusnap_offload_report report;
	gpusnap_region_info info;
	gpusnap_error err;
	uint32_t id;

	state_open(&state, NULL, NULL);
	memset(memory, 0x42, sizeof memory);
	options.tag = "mine";
	ck_ok(gpusnap_region_adopt(
		state.registry, (uintptr_t)memory, sizeof memory, &options, &id, &err));
	ck_fails(gpusnap_offload(state.registry, &named, &report, &err), GPUSNAP_E_STATE,
		"region 3 'mine' is adopted");
	ck_ok(gpusnap_offload(state.registry, NULL, &report, &err));
	ck_assert_uint_eq(report.regions, 2);
	ck_ok(gpusnap_region_get(state.registry, id, &info, &err));
	ck_assert_int_eq(info.state, GPUSNAP_REGION_RESIDENT);
	resume_all(&state);
	check_content(&state);
	for (size_t i = 0; i < sizeof memory; i++)
		ck_assert_uint_eq(memory[i], 0x42);
	state_close(&state);
}
END_TEST

START_TEST(memory_of_an_offloaded_registry_is_released)
{
	struct state state;
	gpusnap_offload_report report;

	state_open(&state, NULL, NULL);
	offload_all(&state, &report);
	state_close(&state);
}
END_TEST

START_TEST(unusable_backings_are_refused)
{
	struct state state;
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_offload_report report;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	options.backing = GPUSNAP_BACKING_SNAPSHOT;
	ck_fails(gpusnap_offload(state.registry, &options, &report, &err), GPUSNAP_E_STATE,
		"no snapshot stands for live state");
	options.backing = (gpusnap_backing)7;
	ck_fails(gpusnap_offload(state.registry, &options, &report, &err), GPUSNAP_E_INVALID,
		"backing 7 is none of");
	check_content(&state);
	state_close(&state);
}
END_TEST

/* ---- policies ---- */

static void check_filled(const uint8_t *bytes, size_t from, size_t to, uint8_t value)
{
	for (size_t i = from; i < to; i++)
		if (bytes[i] != value)
			ck_abort_msg("byte %zu is 0x%02x, expected 0x%02x", i, bytes[i], value);
}

static void cycle(struct state *state, uint64_t kept_bytes)
{
	gpusnap_offload_report report;

	offload_all(state, &report);
	ck_assert_uint_eq(report.copied_bytes, kept_bytes);
	resume_all(state);
}

START_TEST(unclaimed_zero_comes_back_as_zeros_around_kept_buffers)
{
	struct state state;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	const size_t end = STATE_BUFFER_OFFSET + STATE_BUFFER_BYTES;
	static uint8_t kept[STATE_REGIONS][STATE_BUFFER_BYTES];

	options.unclaimed_set = true;
	options.unclaimed = GPUSNAP_POLICY_ZERO;
	state_open(&state, NULL, &options);
	cycle(&state, (uint64_t)2 * STATE_BUFFER_BYTES);
	state_expect(&state, GPUSNAP_REGION_RESIDENT);
	for (size_t r = 0; r < STATE_REGIONS; r++) {
		check_filled(state_bytes(&state, r), 0, STATE_BUFFER_OFFSET, 0);
		check_filled(state_bytes(&state, r), end, STATE_REGION_BYTES, 0);
		memcpy(kept[r], state_bytes(&state, r) + STATE_BUFFER_OFFSET, sizeof kept[r]);
	}
	state_fill(&state, 1);
	for (size_t r = 0; r < STATE_REGIONS; r++)
		ck_assert_mem_eq(
			kept[r], state_bytes(&state, r) + STATE_BUFFER_OFFSET, sizeof kept[r]);
	state_close(&state);
}
END_TEST

START_TEST(discarded_regions_come_back_poisoned_until_rewritten)
{
	struct state state;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_offload_report report;
	gpusnap_error err;
	uint8_t byte = 5;

	options.policy = GPUSNAP_POLICY_DISCARD;
	state_open(&state, NULL, &options);
	cycle(&state, 0);
	state_expect(&state, GPUSNAP_REGION_DISCARDED);
	check_filled(state_bytes(&state, 0), 0, STATE_REGION_BYTES, 0xa5);
	ck_fails(gpusnap_buffer_read(state.registry, "w0", 0, &byte, 1, &err), GPUSNAP_E_STATE,
		"region 1 'first' is discarded: not resident");
	ck_ok(gpusnap_buffer_write(state.registry, "w0", 0, &byte, 1, &err));
	/* It owes nothing, so it may go again before it is rewritten. */
	ck_ok(gpusnap_offload(state.registry, NULL, &report, &err));
	ck_assert_str_eq(state_info(&state, 0).backing, "none");
	resume_all(&state);
	ck_ok(gpusnap_region_rewritten(state.registry, state.regions[0], &err));
	ck_ok(gpusnap_buffer_read(state.registry, "w0", 0, &byte, 1, &err));
	ck_assert_uint_eq(byte, 0xa5);
	ck_assert_int_eq(state_info(&state, 1).state, GPUSNAP_REGION_DISCARDED);
	state_close(&state);
}
END_TEST

START_TEST(discarded_region_that_keeps_bytes_may_not_go_again)
{
	struct state state;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_offload_report report;
	gpusnap_error err;

	options.policy = GPUSNAP_POLICY_DISCARD;
	options.unclaimed_set = true;
	options.unclaimed = GPUSNAP_POLICY_KEEP;
	state_open(&state, NULL, &options);
	cycle(&state, (uint64_t)2 * (STATE_REGION_BYTES - STATE_BUFFER_BYTES));
	state_expect(&state, GPUSNAP_REGION_DISCARDED);
	check_filled(state_bytes(&state, 0), STATE_BUFFER_OFFSET,
		STATE_BUFFER_OFFSET + STATE_BUFFER_BYTES, 0xa5);
	ck_fails(gpusnap_offload(state.registry, NULL, &report, &err), GPUSNAP_E_STATE,
		"is discarded: not resident");
	state_expect(&state, GPUSNAP_REGION_DISCARDED);
	state_close(&state);
}
END_TEST

/* ---- callbacks ---- */

struct witness {
	struct state *state;
	char calls[64]; /* q, u: quiesce, unquiesce; f, m: refill, remapped */
	gpusnap_status quiesce_status;
	gpusnap_status refill_status;
	gpusnap_status remapped_status;
};

static void note(struct witness *witness, char call)
{
	size_t length = strlen(witness->calls);

	ck_assert_uint_lt(length + 1, sizeof witness->calls);
	witness->calls[length] = call;
}

static gpusnap_status quiesce(void *user, gpusnap_error *err)
{
	struct witness *witness = user;

	(void)err;
	note(witness, 'q');
	return witness->quiesce_status;
}

static void unquiesce(void *user)
{
	note(user, 'u');
}

static gpusnap_status refill(
	void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct witness *witness = user;

	note(witness, 'f');
	if (witness->refill_status)
		return gsn_fail(err, witness->refill_status, "no source to refill from");
	check_filled((const uint8_t *)(uintptr_t)address, STATE_BUFFER_OFFSET,
		STATE_BUFFER_OFFSET + STATE_BUFFER_BYTES, 0xa5);
	memset((void *)(uintptr_t)address, 0x33, bytes);
	return GPUSNAP_OK;
}

/* By now the content is there; the registry may be asked and written, but not changed. */
static gpusnap_status remapped(
	void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct witness *witness = user;
	gpusnap_registry *registry = witness->state->registry;
	gpusnap_region_info info;
	gpusnap_error inner;
	uint8_t byte = 0x44;

	(void)err;
	note(witness, 'm');
	if (witness->remapped_status)
		return witness->remapped_status; /* and no message */
	ck_assert_int_eq(gpusnap_region_at(registry, 0, &info, &inner), GPUSNAP_OK);
	ck_assert_uint_eq(info.generation, 1);
	ck_assert_int_eq(gpusnap_buffer_write(registry, "w0", 0, &byte, 1, &inner), GPUSNAP_OK);
	ck_assert_int_eq(gpusnap_buffer_read(registry, "w0", 0, &byte, 1, &inner), GPUSNAP_E_STATE);
	ck_assert_int_eq(gpusnap_region_free(registry, info.id, &inner), GPUSNAP_E_BUSY);
	ck_assert_ptr_nonnull(strstr(inner.message, "a callback of a running resume"));
	ck_assert_int_eq(gpusnap_buffer_unregister(registry, "w0", &inner), GPUSNAP_E_BUSY);
	ck_assert_int_eq(gpusnap_resume(registry, NULL, NULL, &inner), GPUSNAP_E_BUSY);
	ck_assert_int_eq(gpusnap_offload(registry, NULL, NULL, &inner), GPUSNAP_E_BUSY);
	ck_assert_uint_eq(((const uint8_t *)(uintptr_t)address)[bytes - 1], 0x33);
	return GPUSNAP_OK;
}

static void open_witnessed(struct state *state, struct witness *witness)
{
	gpusnap_registry_options registry = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;

	memset(witness, 0, sizeof *witness);
	witness->state = state;
	registry.quiesce = quiesce;
	registry.unquiesce = unquiesce;
	registry.user = witness;
	region.policy = GPUSNAP_POLICY_RECOMPUTE;
	region.refill = refill;
	region.remapped = remapped;
	region.user = witness;
	state_open(state, &registry, &region);
}

START_TEST(callbacks_come_in_order_and_paired)
{
	struct state state;
	struct witness witness;

	open_witnessed(&state, &witness);
	cycle(&state, 0);
	ck_assert_str_eq(witness.calls, "quffmm");
	state_expect(&state, GPUSNAP_REGION_RESIDENT);
	check_filled(state_bytes(&state, 1), 0, STATE_REGION_BYTES, 0x33);
	state_close(&state);
}
END_TEST

START_TEST(refused_quiesce_changes_nothing)
{
	struct state state;
	struct witness witness;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_witnessed(&state, &witness);
	witness.quiesce_status = GPUSNAP_E_BUSY;
	ck_fails(gpusnap_offload(state.registry, NULL, &report, &err), GPUSNAP_E_BUSY,
		"offload: callback quiesce refused: try again when the application is at rest");
	ck_assert_str_eq(witness.calls, "q");
	check_content(&state);
	/* A failure after it is paired, one before it does not ask at all. */
	witness.quiesce_status = GPUSNAP_OK;
	faulty_arm(&state.faulty, FAULTY_UNMAP, 1, GPUSNAP_E_DEVICE);
	ck_fails(gpusnap_offload(state.registry, NULL, &report, &err), GPUSNAP_E_DEVICE, "unmap");
	ck_assert_str_eq(witness.calls, "qqu");
	ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_STATE, "nothing is");
	ck_assert_str_eq(witness.calls, "qqu");
	check_content(&state);
	state_close(&state);
}
END_TEST

START_TEST(failing_callback_leaves_all_regions_offloaded)
{
	struct state state;
	struct witness witness;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_witnessed(&state, &witness);
	offload_all(&state, &report);
	witness.refill_status = GPUSNAP_E_IO;
	ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_IO,
		"region 1 'first': callback refill: no source to refill from");
	state_expect(&state, GPUSNAP_REGION_OFFLOADED);
	ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
	witness.refill_status = GPUSNAP_OK;
	witness.remapped_status = GPUSNAP_E_DEVICE;
	ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_DEVICE,
		"region 1 'first': callback remapped: it gave no reason");
	state_expect(&state, GPUSNAP_REGION_OFFLOADED);
	ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
	ck_assert_uint_eq(state_info(&state, 0).generation, 2);
	state_close(&state);
}
END_TEST

START_TEST(recompute_without_a_callback_is_left_to_the_application)
{
	struct state state;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;

	options.policy = GPUSNAP_POLICY_RECOMPUTE;
	state_open(&state, NULL, &options);
	cycle(&state, 0);
	state_expect(&state, GPUSNAP_REGION_DISCARDED);
	check_filled(state_bytes(&state, 1), 0, STATE_REGION_BYTES, 0xa5);
	state_close(&state);
}
END_TEST

/* ---- state machine ---- */

enum { RESIDENT = GPUSNAP_REGION_RESIDENT, OFFLOADED, DISCARDED, STATES };

typedef gpusnap_status (*call_fn)(struct state *state, gpusnap_error *err);

static gpusnap_status call_alloc(struct state *state, gpusnap_error *err)
{
	uint64_t offset;

	return gpusnap_region_alloc(state->registry, state->regions[0], 1, 1, &offset, err);
}

static gpusnap_status call_free(struct state *state, gpusnap_error *err)
{
	return gpusnap_region_free(state->registry, state->regions[0], err);
}

static gpusnap_status call_rewritten(struct state *state, gpusnap_error *err)
{
	return gpusnap_region_rewritten(state->registry, state->regions[0], err);
}

static gpusnap_status call_register(struct state *state, gpusnap_error *err)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;

	options.name = "new";
	options.dtype = GPUSNAP_U8;
	options.region = state->regions[0];
	return gpusnap_buffer_register(state->registry, &options, err);
}

static gpusnap_status call_unregister(struct state *state, gpusnap_error *err)
{
	return gpusnap_buffer_unregister(state->registry, "w0", err);
}

static gpusnap_status call_find(struct state *state, gpusnap_error *err)
{
	gpusnap_buffer_info info;

	return gpusnap_buffer_find(state->registry, "w0", &info, err);
}

static gpusnap_status call_read(struct state *state, gpusnap_error *err)
{
	char byte;

	return gpusnap_buffer_read(state->registry, "w0", 0, &byte, 1, err);
}

static gpusnap_status call_write(struct state *state, gpusnap_error *err)
{
	return gpusnap_buffer_write(state->registry, "w0", 0, "", 1, err);
}

static gpusnap_status call_leaves(struct state *state, gpusnap_error *err)
{
	gpusnap_digest leaves[2];

	return gpusnap_buffer_leaves(state->registry, "w0", leaves, err);
}

static gpusnap_status call_offload(struct state *state, gpusnap_error *err)
{
	return gpusnap_offload(state->registry, NULL, NULL, err);
}

static gpusnap_status call_resume(struct state *state, gpusnap_error *err)
{
	return gpusnap_resume(state->registry, NULL, NULL, err);
}

#define OK    GPUSNAP_OK
#define WRONG GPUSNAP_E_STATE

static const struct transition {
	const char *name;
	call_fn call;
	gpusnap_status status[STATES]; /* when the regions are resident, offloaded, discarded */
} transitions[] = {
	{"alloc", call_alloc, {OK, WRONG, OK}},
	{"free", call_free, {OK, WRONG, OK}},
	{"rewritten", call_rewritten, {WRONG, WRONG, OK}},
	{"register", call_register, {OK, WRONG, OK}},
	{"unregister", call_unregister, {OK, WRONG, OK}},
	{"find", call_find, {OK, OK, OK}},
	{"read", call_read, {OK, WRONG, WRONG}},
	{"write", call_write, {OK, WRONG, OK}},
	{"leaves", call_leaves, {OK, WRONG, WRONG}},
	{"offload", call_offload, {OK, WRONG, OK}},
	{"resume", call_resume, {WRONG, OK, WRONG}},
};

static void enter_state(struct state *state, int wanted)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;

	options.policy = GPUSNAP_POLICY_DISCARD;
	state_open(state, NULL, &options);
	if (wanted != RESIDENT)
		ck_ok(call_offload(state, &err));
	if (wanted == DISCARDED)
		ck_ok(call_resume(state, &err));
	state_expect(state, (gpusnap_region_state)wanted);
}

START_TEST(every_call_in_every_state)
{
	for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
		for (int from = RESIDENT; from < STATES; from++) {
			const struct transition *t = &transitions[i];
			struct state state;
			gpusnap_error err;
			gpusnap_status s;

			enter_state(&state, from);
			s = t->call(&state, &err);
			ck_assert_msg(s == t->status[from], "%s while %s: %s, expected %s", t->name,
				gpusnap_region_state_name((gpusnap_region_state)from),
				gpusnap_status_name(s), gpusnap_status_name(t->status[from]));
			if (s) {
				state_expect(&state, (gpusnap_region_state)from);
				ck_assert_uint_eq(gpusnap_region_count(state.registry), 2);
				ck_assert_uint_eq(gpusnap_buffer_count(state.registry), 2);
			}
			state_close(&state);
		}
}
END_TEST

/* ---- failures ---- */

START_TEST(failing_map_rolls_back_and_a_retry_works)
{
	for (unsigned n = 1; n <= STATE_REGIONS; n++) {
		struct state state;
		gpusnap_offload_report report;
		gpusnap_error err;

		state_open(&state, NULL, NULL);
		offload_all(&state, &report);
		faulty_arm(&state.faulty, FAULTY_MAP, n, GPUSNAP_E_NOMEM);
		ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_NOMEM,
			n == 1 ? "region 1 'first'" : "region 2 'second'");
		ck_assert_ptr_nonnull(strstr(err.message, "all regions stay offloaded"));
		state_expect(&state, GPUSNAP_REGION_OFFLOADED);
		ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
		resume_all(&state);
		check_content(&state);
		state_close(&state);
	}
}
END_TEST

START_TEST(failing_unmap_of_a_rollback_leaves_a_retry_possible)
{
	struct state state;
	gpusnap_offload_report report;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	offload_all(&state, &report);
	state.faulty.corrupt_in = 1;
	state.faulty.corrupt_again = 100;
	faulty_arm(&state.faulty, FAULTY_UNMAP, 1, GPUSNAP_E_DEVICE);
	ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_CORRUPT, "leaf 0");
	ck_assert(!faulty_is_armed(&state.faulty));
	state_expect(&state, GPUSNAP_REGION_OFFLOADED);
	ck_assert_uint_eq(state_info(&state, 0).resident_bytes, STATE_REGION_BYTES);
	ck_assert_uint_eq(state_info(&state, 1).resident_bytes, 0);
	state.faulty.corrupt_in = 0;
	resume_all(&state);
	check_content(&state);
	state_close(&state);
}
END_TEST

/* What a failed offload left behind, seen from outside; then the state must survive a cycle. */
static void check_undone(struct state *state)
{
	gpusnap_offload_report report;

	check_content(state);
	ck_assert_uint_eq(state->faulty.mapped_bytes, (uint64_t)STATE_REGIONS * STATE_REGION_BYTES);
	offload_all(state, &report);
	resume_all(state);
	check_content(state);
}

START_TEST(every_failure_of_an_offload_leaves_everything_resident)
{
	for (unsigned delta = 0; delta < 2; delta++)
		for (unsigned n = 1;; n++) {
			struct state state;
			gpusnap_offload_report report;
			gpusnap_error err;
			gpusnap_status s;

			state_open(&state, NULL, NULL);
			if (delta) {
				offload_all(&state, &report);
				resume_all(&state);
				state_fill(&state, 9);
			}
			faulty_arm(&state.faulty, FAULTY_ANY, n, GPUSNAP_E_DEVICE);
			s = gpusnap_offload(state.registry, NULL, &report, &err);
			if (s == GPUSNAP_OK && faulty_is_armed(&state.faulty)) {
				faulty_arm(&state.faulty, FAULTY_ANY, 0, GPUSNAP_OK);
				resume_all(&state);
				check_content(&state);
				state_close(&state);
				ck_assert_uint_gt(n, 8);
				break;
			}
			ck_assert(!faulty_is_armed(&state.faulty));
			if (s) {
				ck_assert_int_eq(s, GPUSNAP_E_DEVICE);
				check_undone(&state);
			}
			state_close(&state);
		}
}
END_TEST

START_TEST(every_failure_of_a_resume_leaves_everything_offloaded)
{
	for (unsigned n = 1;; n++) {
		struct state state;
		gpusnap_offload_report report;
		gpusnap_error err;
		gpusnap_status s;

		state_open(&state, NULL, NULL);
		offload_all(&state, &report);
		faulty_arm(&state.faulty, FAULTY_ANY, n, GPUSNAP_E_DEVICE);
		s = gpusnap_resume(state.registry, NULL, NULL, &err);
		if (s == GPUSNAP_OK && faulty_is_armed(&state.faulty)) {
			faulty_arm(&state.faulty, FAULTY_ANY, 0, GPUSNAP_OK);
			check_content(&state);
			state_close(&state);
			ck_assert_uint_gt(n, 10);
			break;
		}
		if (s) {
			ck_assert_int_eq(s, GPUSNAP_E_DEVICE);
			state_expect(&state, GPUSNAP_REGION_OFFLOADED);
			ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
			resume_all(&state);
		}
		check_content(&state);
		state_close(&state);
	}
}
END_TEST

START_TEST(damaged_copy_on_the_way_back_is_repeated)
{
	/* Region by region: raw, buffer, raw; the copies of one pass. */
	for (unsigned n = 1; n <= 6; n++) {
		struct state state;
		gpusnap_offload_report report;

		state_open(&state, NULL, NULL);
		offload_all(&state, &report);
		state.faulty.corrupt_in = n;
		resume_all(&state);
		ck_assert_uint_eq(state.faulty.corrupt_in, 0);
		check_content(&state);
		state_close(&state);
	}
}
END_TEST

START_TEST(damaged_arena_is_named_and_nothing_becomes_usable)
{
	struct state state;
	gpusnap_offload_report report;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	state.faulty.corrupt_in = 5; /* region 2: raw, then the buffer, whose middle is leaf 0 */
	offload_all(&state, &report);
	ck_fails(gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_CORRUPT,
		"region 2 'second': buffer 'w1' leaf 0 of 2 does not match its digest");
	state_expect(&state, GPUSNAP_REGION_OFFLOADED);
	ck_assert_uint_eq(state.faulty.mapped_bytes, 0);
	ck_fails(
		gpusnap_resume(state.registry, NULL, NULL, &err), GPUSNAP_E_CORRUPT, "'w1' leaf 0");
	state_close(&state);
}
END_TEST

START_TEST(failed_measurement_undoes_the_offload)
{
	struct state state;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	faulty_arm(&state.faulty, FAULTY_QUERY, 2, GPUSNAP_E_DEVICE);
	ck_fails(gpusnap_offload(state.registry, NULL, NULL, &err), GPUSNAP_E_DEVICE, "query");
	check_undone(&state);
	state_close(&state);
}
END_TEST

START_TEST(undo_that_fails_too_says_what_stays_offloaded)
{
	struct state state;
	gpusnap_error err;

	state_open(&state, NULL, NULL);
	/* Copies 1 to 6 go to the arenas; those back are all damaged. */
	faulty_arm(&state.faulty, FAULTY_UNMAP, 2, GPUSNAP_E_DEVICE);
	state.faulty.corrupt_in = 7;
	state.faulty.corrupt_again = 100;
	ck_fails(gpusnap_offload(state.registry, NULL, NULL, &err), GPUSNAP_E_DEVICE,
		"1 regions stay offloaded");
	ck_assert_ptr_nonnull(strstr(err.message, "injected failure of unmap"));
	ck_assert_int_eq(state_info(&state, 0).state, GPUSNAP_REGION_OFFLOADED);
	ck_assert_int_eq(state_info(&state, 1).state, GPUSNAP_REGION_RESIDENT);
	state.faulty.corrupt_in = 0;
	ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
	check_content(&state);
	state_close(&state);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		offload_gives_memory_back_and_resume_returns_every_byte,
		second_offload_copies_only_changed_leaves,
		changed_layout_makes_a_new_arena,
		tags_choose_regions,
		adopted_regions_stay_where_they_are,
		memory_of_an_offloaded_registry_is_released,
		unusable_backings_are_refused,
		unclaimed_zero_comes_back_as_zeros_around_kept_buffers,
		discarded_regions_come_back_poisoned_until_rewritten,
		discarded_region_that_keeps_bytes_may_not_go_again,
		callbacks_come_in_order_and_paired,
		refused_quiesce_changes_nothing,
		failing_callback_leaves_all_regions_offloaded,
		recompute_without_a_callback_is_left_to_the_application,
		every_call_in_every_state,
		failing_map_rolls_back_and_a_retry_works,
		failing_unmap_of_a_rollback_leaves_a_retry_possible,
		every_failure_of_an_offload_leaves_everything_resident,
		every_failure_of_a_resume_leaves_everything_offloaded,
		damaged_copy_on_the_way_back_is_repeated,
		damaged_arena_is_named_and_nothing_becomes_usable,
		failed_measurement_undoes_the_offload,
		undo_that_fails_too_says_what_stays_offloaded,
	};

	return RUN_SUITE("offload_cycle", tests);
}
