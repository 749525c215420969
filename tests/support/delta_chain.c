/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/delta_chain.h"

#include <string.h>

#include "snapshot/registry_state.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

static uint64_t region_bytes(const struct delta_chain *chain, uint32_t region)
{
	return chain->state->registry->regions[region].bytes;
}

void chain_add(struct delta_chain *chain)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	uint32_t link = chain->count++, regions = chain->state->region_count;
	char name[16];
	gpusnap_error err;

	assert(link < CHAIN_LINKS_MAX);
	(void)snprintf(name, sizeof name, "%u.gsnap", link);
	tempdir_join(chain->paths[link], chain->folder, name);
	options.parent = link ? chain->paths[link - 1] : NULL;
	options.replace = true;
	options.read_back = link % 2;
	ck_ok(gpusnap_save(
		chain->state->registry, chain->paths[link], &options, &chain->reports[link], &err));
	chain->images[link] = calloc(regions + 1, sizeof(uint8_t *));
	assert(chain->images[link]);
	for (uint32_t i = 0; i < regions; i++) {
		chain->images[link][i] = malloc(region_bytes(chain, i));
		assert(chain->images[link][i]);
		memcpy(chain->images[link][i], live_bytes(chain->state->registry, i),
			region_bytes(chain, i));
	}
}

void chain_close(struct delta_chain *chain)
{
	for (uint32_t link = 0; link < chain->count; link++) {
		for (uint32_t i = 0; i < chain->state->region_count; i++)
			free(chain->images[link][i]);
		free(chain->images[link]);
	}
	chain->count = 0;
}

bool chain_equals(const struct delta_chain *chain, uint32_t link, const gpusnap_registry *registry)
{
	for (uint32_t i = 0; i < chain->state->region_count; i++)
		if (memcmp(live_bytes(registry, i), chain->images[link][i],
			    region_bytes(chain, i)) != 0)
			return false;
	return true;
}

void chain_load(const struct delta_chain *chain, uint32_t link)
{
	for (uint32_t i = 0; i < chain->state->region_count; i++)
		memcpy(live_bytes(chain->state->registry, i), chain->images[link][i],
			region_bytes(chain, i));
}

void chain_change(const struct delta_chain *chain, uint64_t *random)
{
	uint32_t region = (uint32_t)random_below(random, chain->state->region_count);
	uint8_t *bytes = live_bytes(chain->state->registry, region);
	uint64_t size = region_bytes(chain, region);

	switch (random_below(random, 5)) {
	case 0:
		return;
	case 1: /* all of a region */
		random_fill(random, bytes, size);
		return;
	case 2: /* back to what was before */
		if (chain->count)
			chain_load(chain, (uint32_t)random_below(random, chain->count));
		return;
	default:
		for (uint64_t i = 1 + random_below(random, 6); i > 0; i--)
			bytes[random_below(random, size)] ^= 1 + (uint8_t)random_below(random, 255);
	}
}

const uint8_t *chain_entry(const struct delta_chain *chain, uint32_t link,
	const gpusnap_snapshot *snapshot, const char *name)
{
	const gpusnap_plan *plan = gpusnap_snapshot_plan(snapshot);
	uint32_t region = 0, at = 0;
	uint64_t offset = 0;

	if (!gpusnap_raw_name_parse(name, &region, &offset)) {
		for (uint32_t i = 0; i < plan->buffer_count; i++) {
			if (strcmp(plan->buffers[i].name, name) != 0)
				continue;
			region = plan->buffers[i].region;
			offset = plan->buffers[i].offset;
		}
	}
	while (chain->state->registry->regions[at].id != region)
		at++;
	return chain->images[link][at] + offset;
}
