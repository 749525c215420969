/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command.h"

#include <stddef.h>

const struct command commands[] = {
	{"serve", "DIR | --from FILE", "hold a model and answer the commands below", cmd_serve, 0},
	{"ps", "", "processes with an agent", cmd_ps, 1},
	{"show", "", "regions, buffers and unclaimed bytes of one", cmd_show, 1},
	{"save", "FILE", "write its state to a snapshot", cmd_save, 1},
	{"offload", "[TAG...]", "give its device memory back, keep the addresses", cmd_offload, 1},
	{"resume", "[TAG...]", "take the memory again and put the bytes back", cmd_resume, 1},
	{"restore", "FILE", "put a snapshot's bytes into it", cmd_restore, 1},
	{"validate", "[FILE]", "prove by a MoE decode that its state works", cmd_validate, 1},
	{"inject", "KIND BUFFER", "damage live state, to watch it being found", cmd_inject, 1},
	{"verify", "[FILE]", "compare bytes with digests, live or in a file", cmd_verify, 2},
	{"load", "DIR FILE", "make a snapshot from a checkpoint directory", cmd_load, 2},
	{"ls", "FILE", "what a snapshot holds", cmd_ls, 2},
	{"diff", "A B", "which buffers of two snapshots differ", cmd_diff, 2},
	{"extract", "FILE NAME", "write one buffer as safetensors or raw bytes", cmd_extract, 2},
	{"flatten", "FILE OUT", "a delta and its parents as one full snapshot", cmd_flatten, 2},
	{"doctor", "[DIR...]", "what this machine can do, and what it lacks", cmd_doctor, 3},
	{"bench", "[DIR]", "what this machine reaches of its own ceilings", cmd_bench, 3},
	{NULL, NULL, NULL, NULL, 0},
};
