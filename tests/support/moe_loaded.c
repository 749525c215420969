/* SPDX-License-Identifier: Apache-2.0 */
/* MoE models loaded from the small checkpoints. */
#include <stdio.h>
#include <string.h>

#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

void moe_state_load(struct moe_state *state, const char *name, const gpusnap_load_options *options)
{
	gpusnap_registry_options ranks = GPUSNAP_REGISTRY_OPTIONS_INIT;
	char directory[512];
	gpusnap_loaded loaded;
	gpusnap_error err;

	memset(state, 0, sizeof *state);
	ranks.ep_rank = options->ep_rank;
	ranks.ep_size = options->ep_size;
	ranks.tp_rank = options->tp_rank;
	ranks.tp_size = options->tp_size;
	moe_state_open(state, NULL, &ranks);
	(void)snprintf(directory, sizeof directory, "%s/checkpoints/%s", GPUSNAP_TEST_DATA, name);
	ck_ok(gpusnap_load(state->registry, directory, options, &loaded, &err));
	state->model = loaded.model;
	loaded.model = NULL;
	for (uint32_t i = 0; i < loaded.mask_count; i++) {
		state->mask_region = loaded.masks[i].region;
		state->mask_offsets[loaded.masks[i].layer] = loaded.masks[i].offset;
	}
	ck_ok(gpusnap_dispatch_create(state->registry, state->model, &state->dispatch, &err));
	state->unregistered = options->unregistered_masks;
	if (state->unregistered)
		moe_state_bind_masks(state);
	gpusnap_loaded_release(&loaded);
}
