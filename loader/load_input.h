/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LOAD_INPUT_H
#define GSN_LOAD_INPUT_H
/*
 * What a load starts from, and all that is known before a tensor is read: the options, the open
 * checkpoint, and the state that the rank is to hold.
 */
#include <gpusnap/loader.h>

#include "loader/checkpoint.h"
#include "loader/config.h"
#include "loader/rank_state.h"
#include "loader/source_path.h"

struct gsn_load_input {
	gpusnap_load_options options; /* resolved */
	struct gsn_rank rank;
	struct gsn_source_path source;
	struct gsn_config config;
	struct gsn_checkpoint checkpoint;
	struct gsn_rank_state state;
};

/* First step: options and rank of a zeroed input. E_INVALID: out of range. */
gpusnap_status gsn_load_input_resolve(
	struct gsn_load_input *input, const gpusnap_load_options *caller, gpusnap_error *err);
/* Second step: open the checkpoint at `path` and plan the rank's state. */
gpusnap_status gsn_load_input_open(
	struct gsn_load_input *input, const char *path, gpusnap_error *err);
void gsn_load_input_close(struct gsn_load_input *input); /* after either step, or a failure */
/* The part of the report that is known by then. */
void gsn_load_input_report(const struct gsn_load_input *input, gpusnap_load_report *report);

#endif
