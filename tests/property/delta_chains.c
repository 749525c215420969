/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random changes over random chains, up to the greatest depth: whatever link is read, by whatever
 * way, gives the memory of its time.
 */
#include <string.h>

#include "snapshot/registry_state.h"
#include "tests/support/delta_chain.h"
#include "tests/support/file.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { CHAINS = 12, CHAINS_LONG = 400 };

static char folder[PATH_MAX];
static gpusnap_error err;

static int chain_total(void)
{
	const char *is_long = getenv("GPUSNAP_LONG");

	return is_long && *is_long ? CHAINS_LONG : CHAINS;
}

static gpusnap_snapshot *open_link(const struct delta_chain *chain, uint32_t link)
{
	gpusnap_snapshot *snapshot;

	ck_ok(gpusnap_snapshot_open(chain->paths[link], &snapshot, &err));
	ck_assert_uint_eq(gpusnap_snapshot_link_count(snapshot), link + 1);
	return snapshot;
}

/* Small blocks, so that runs begin and end inside some and go over others. */
static gpusnap_io_options random_io(uint64_t *random)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;

	io.engine = random_below(random, 2) ? GPUSNAP_IO_THREADS : GPUSNAP_IO_AUTO;
	io.direct = (gpusnap_io_direct)(2 * random_below(random, 2));
	io.depth = 1 + (uint32_t)random_below(random, 4);
	io.block_bytes = 65536 * (1 + random_below(random, 5));
	return io;
}

static void check_restore(struct delta_chain *chain, uint32_t link, gpusnap_snapshot *snapshot,
	const gpusnap_io_options *io)
{
	gpusnap_registry *other;

	live_scribble(chain->state->registry);
	ck_ok(gpusnap_restore_snapshot(chain->state->registry, snapshot, io, NULL, &err));
	ck_assert(chain_equals(chain, link, chain->state->registry));
	ck_ok(gpusnap_registry_from_open(
		chain->state->registry->device, snapshot, NULL, io, &other, NULL, &err));
	ck_assert(chain_equals(chain, link, other));
	gpusnap_registry_free(other);
}

static void check_verify(gpusnap_snapshot *snapshot, const gpusnap_io_options *io)
{
	gpusnap_damage damage;

	ck_ok(gpusnap_snapshot_verify(snapshot, io, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 0);
	ck_assert_uint_eq(damage.buffers, gpusnap_snapshot_entry_count(snapshot));
	gpusnap_damage_release(&damage);
}

static void check_extract(const struct delta_chain *chain, uint32_t link,
	gpusnap_snapshot *snapshot, const gpusnap_io_options *io)
{
	gpusnap_extract_options options = GPUSNAP_EXTRACT_OPTIONS_INIT;
	char path[PATH_MAX];

	options.raw = options.replace = true;
	options.io = *io;
	tempdir_join(path, folder, "extracted");
	for (size_t i = 0; i < gpusnap_snapshot_entry_count(snapshot); i++) {
		const gpusnap_snapshot_entry *entry = gpusnap_snapshot_entry_at(snapshot, i);
		uint8_t *bytes;
		size_t length;

		ck_ok(gpusnap_snapshot_extract(snapshot, entry->name, path, &options, NULL, &err));
		bytes = read_file(path, &length);
		ck_assert_uint_eq(length, entry->bytes);
		ck_assert(length == 0 ||
			  memcmp(bytes, chain_entry(chain, link, snapshot, entry->name), length) ==
				  0);
		free(bytes);
	}
}

/* The full file has the same plan and leaves, and needs nobody. */
static void check_flatten(struct delta_chain *chain, uint32_t link, gpusnap_snapshot *snapshot,
	const gpusnap_io_options *io)
{
	gpusnap_flatten_options options = GPUSNAP_FLATTEN_OPTIONS_INIT;
	gpusnap_differences differences;
	gpusnap_flatten_report report;
	gpusnap_snapshot *flat;
	char path[PATH_MAX];

	options.io = *io;
	options.replace = true;
	tempdir_join(path, folder, "flat.gsnap");
	ck_ok(gpusnap_snapshot_flatten(snapshot, path, &options, &report, &err));
	ck_ok(gpusnap_snapshot_open(path, &flat, &err));
	ck_assert_uint_eq(gpusnap_snapshot_link_count(flat), 1);
	ck_assert(gpusnap_digest_equal(gpusnap_snapshot_seal(flat)->root, report.root));
	ck_ok(gpusnap_snapshot_diff(snapshot, flat, &differences, &err));
	ck_assert_uint_eq(differences.count, 0);
	check_restore(chain, link, flat, io);
	gpusnap_differences_release(&differences);
	gpusnap_snapshot_close(flat);
}

static void check_link(struct delta_chain *chain, uint32_t link, uint64_t *random)
{
	gpusnap_io_options io = random_io(random);
	gpusnap_snapshot *snapshot = open_link(chain, link);

	check_restore(chain, link, snapshot, &io);
	check_verify(snapshot, &io);
	check_extract(chain, link, snapshot, &io);
	check_flatten(chain, link, snapshot, &io);
	gpusnap_snapshot_close(snapshot);
}

START_TEST(every_link_gives_the_memory_of_its_time)
{
	uint64_t seed = random_seed(20261201), random = seed;
	int total = chain_total();
	gpusnap_device *device;

	ck_ok(gpusnap_device_open("host", &device, &err));
	for (int i = 0; i < total; i++) {
		struct live_state state;
		struct delta_chain chain = {.state = &state, .folder = folder};
		uint32_t links = 2 + (uint32_t)random_below(&random, CHAIN_LINKS_MAX - 1);

		live_random(&state, device, random_u64(&random));
		for (uint32_t link = 0; link < links; link++) {
			chain_add(&chain);
			chain_change(&chain, &random);
		}
		for (uint32_t link = 0; link < links; link++)
			check_link(&chain, link, &random);
		chain_close(&chain);
		live_close(&state);
	}
	(void)printf("seed %llu: %d chains\n", (unsigned long long)seed, total);
	gpusnap_device_close(device);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {every_link_gives_the_memory_of_its_time};
	int result;

	tempdir_make(folder, NULL);
	result = RUN_SUITE("delta_chains", tests);
	tempdir_remove(folder);
	return result;
}
