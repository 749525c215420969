/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offload and resume over and over: what is in memory stays, and neither the device's memory nor
 * the host's is lost. And resume when somebody else holds the memory. The device's name is the
 * argument, "host" by default.
 */
#include <gpusnap/snapshot.h>

#include "tests/device/fixture.h"

enum { REGIONS = 3, CYCLES = 1000, WARM_UP = 20, GRANULES = 8 };

/* Sanitizers keep what is freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOST_ALLOWANCE ((uint64_t)1 << 40)
#else
#define HOST_ALLOWANCE ((uint64_t)8 << 20)
#endif

static const char *device_name = "host";
static const char *const tags[REGIONS] = {"weights", "kv_cache", "cuda_graph"};

struct state {
	struct fixture f;
	gpusnap_registry *registry;
	uint32_t regions[REGIONS];
	uint64_t bytes[REGIONS];
	uint8_t *content[REGIONS];
	uint64_t random;
};

static gpusnap_address address_of(const struct state *s, int i)
{
	gpusnap_region_info info;
	gpusnap_error err;

	ck_ok(gpusnap_region_get(s->registry, s->regions[i], &info, &err));
	return info.address;
}

static void add_region(struct state *s, int i)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;

	options.tag = tags[i];
	s->bytes[i] = (uint64_t)(i + 1) * GRANULES * s->f.granule;
	ck_ok(gpusnap_region_reserve(s->registry, s->bytes[i], &options, &s->regions[i], &err));
	s->content[i] = host_memory(s->bytes[i]);
	for (uint64_t k = 0; k < s->bytes[i]; k++)
		s->content[i][k] = (uint8_t)random_u64(&s->random);
	put(&s->f, address_of(s, i), s->content[i], s->bytes[i]);
}

static void state_open(struct state *s)
{
	gpusnap_error err;

	*s = (struct state){.f = fixture_open(device_name), .random = 7};
	ck_ok(gpusnap_registry_create(s->f.device, NULL, &s->registry, &err));
	for (int i = 0; i < REGIONS; i++)
		add_region(s, i);
}

static void state_check(struct state *s)
{
	for (int i = 0; i < REGIONS; i++)
		ck_device_holds(&s->f, address_of(s, i), s->content[i], s->bytes[i]);
}

static void state_close(struct state *s)
{
	gpusnap_registry_free(s->registry);
	for (int i = 0; i < REGIONS; i++)
		free(s->content[i]);
	fixture_close(&s->f);
}

/* Some of the regions, at least one; now and then a byte changes in between. */
static void cycle(struct state *s)
{
	const char *chosen[REGIONS];
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	uint32_t which = 1 + (uint32_t)random_below(&s->random, (1u << REGIONS) - 1);
	int changed = (int)random_below(&s->random, REGIONS);
	uint64_t at = random_below(&s->random, s->bytes[changed]);
	gpusnap_error err;

	for (int i = 0; i < REGIONS; i++)
		if (which & 1u << i)
			chosen[options.tag_count++] = tags[i];
	options.tags = chosen;
	options.backing = GPUSNAP_BACKING_ARENA;
	s->content[changed][at] ^= 0x5a;
	put(&s->f, address_of(s, changed) + at, &s->content[changed][at], 1);
	ck_ok(gpusnap_offload(s->registry, &options, NULL, &err));
	ck_ok(gpusnap_resume(s->registry, &options, NULL, &err));
}

static uint64_t device_free(const struct state *s)
{
	gpusnap_device_properties properties;
	gpusnap_error err;

	ck_ok(gpusnap_device_query(s->f.device, &properties, &err));
	return properties.free_bytes;
}

static uint64_t resident_bytes(void)
{
	unsigned long total, resident;
	FILE *file = fopen("/proc/self/statm", "r");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%lu %lu", &total, &resident), 2);
	(void)fclose(file);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(a_thousand_cycles_keep_every_byte_and_lose_no_memory)
{
	uint64_t device_before = 0, host_before = 0;
	struct state s;

	state_open(&s);
	for (int i = 0; i < CYCLES; i++) {
		if (i == WARM_UP) {
			device_before = device_free(&s);
			host_before = resident_bytes();
		}
		cycle(&s);
	}
	state_check(&s);
	/* The host device's free memory is the machine's, where others come and go. */
	if (strcmp(s.f.ops->kind, "host") != 0)
		ck_assert_uint_ge(device_free(&s) + s.f.granule, device_before);
	ck_assert_uint_le(resident_bytes(), host_before + HOST_ALLOWANCE);
	state_close(&s);
}
END_TEST

START_TEST(a_resume_without_memory_changes_nothing_and_can_be_repeated)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	uint64_t granules;
	gpusnap_address hog;
	gpusnap_error err;
	struct state s;

	state_open(&s);
	options.backing = GPUSNAP_BACKING_ARENA;
	ck_ok(gpusnap_offload(s.registry, &options, NULL, &err));
	granules = device_free(&s) / s.f.granule - GRANULES;
	hog = reserve(&s.f, granules);
	map(&s.f, hog, granules);
	ck_fails(gpusnap_resume(s.registry, &options, NULL, &err), GPUSNAP_E_NOMEM, s.f.ops->kind);
	for (int i = 0; i < REGIONS; i++) {
		gpusnap_region_info info;

		ck_ok(gpusnap_region_get(s.registry, s.regions[i], &info, &err));
		ck_assert_int_eq(info.state, GPUSNAP_REGION_OFFLOADED);
	}
	release(&s.f, hog, granules);
	ck_ok(gpusnap_resume(s.registry, &options, NULL, &err));
	state_check(&s);
	state_close(&s);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const host[] = {a_thousand_cycles_keep_every_byte_and_lose_no_memory};
	const TTest *const gpu[] = {a_thousand_cycles_keep_every_byte_and_lose_no_memory,
		a_resume_without_memory_changes_nothing_and_can_be_repeated};

	if (argc > 1)
		device_name = argv[1];
	if (!device_is_there(device_name))
		return 77;
	/* The host lends more memory than it has. */
	if (strcmp(device_name, "host") == 0)
		return RUN_SUITE("cycles_leak_nothing", host);
	return RUN_SUITE("cycles_leak_nothing", gpu);
}
