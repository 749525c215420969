/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_CRASH_LAB_H
#define GPUSNAP_TEST_CRASH_LAB_H
/*
 * One save into a crash_fs, and what the real reader says of every state of the disk that a power
 * cut may leave: at the target's name there is the old file whole or the new one whole, and after
 * success only the new; whatever else is there is refused, or is the new file.
 */
#include <limits.h>

#include <gpusnap/snapshot.h>

#include "tests/support/crash_states.h"

#define CRASH_TARGET "state.gsnap"

struct crash_entry {
	uint64_t key; /* 0: free */
	int value;
};

/* Hashes, each with a value; -1 when it is met for the first time. */
struct crash_set {
	struct crash_entry *entries;
	uint64_t count;
};

struct crash_lab {
	gpusnap_device *device;
	int scratch; /* memfd that the reader opens */
	char scratch_path[32];
	/* A folder of the real file system, where the parent of a delta is. */
	char folder[PATH_MAX], parent[PATH_MAX];
	struct crash_set states;
	uint64_t points, files_read;
};

void crash_lab_open(struct crash_lab *lab);
void crash_lab_close(struct crash_lab *lab);
/* True when open and verify find nothing wrong with the bytes. */
bool crash_lab_accepts(const struct crash_lab *lab, const struct crash_file *file,
	uint8_t ret_uuid[GPUSNAP_UUID_BYTES]);

struct crash_scenario {
	const char *name;
	bool named, over, replace, read_back;
	bool delta;	    /* of the old state, in another folder; one leaf is changed */
	bool large;	    /* three blocks; otherwise one */
	unsigned cancel_at; /* blocks; 0: never */
};

/* Every way to save; the last has no name. */
extern const struct crash_scenario crash_scenarios[];

struct crash_owner {
	uint8_t *bytes;
	gpusnap_registry *registry;
};

enum crash_verdict {
	CRASH_OLD,
	CRASH_NEW,
	CRASH_INCOMPLETE,
	CRASH_WRONG, /* accepted, and neither old nor new */
	CRASH_ABSENT,
	CRASH_VERDICTS,
};

struct crash_trial {
	struct crash_lab *lab;
	const struct crash_scenario *scenario;
	struct crash_fs fs;
	struct crash_owner owners[2]; /* by CRASH_OLD and CRASH_NEW */
	uint8_t uuids[2][GPUSNAP_UUID_BYTES];
	uint8_t *files[2]; /* as the writer meant them */
	uint64_t lengths[2];
	gpusnap_status result;
	struct crash_set contents; /* verdicts by content */
	uint64_t violations;
	char first[160]; /* of them */
};

/* Runs the save; `mutate` may make the file system, and with it the writer, wrong. NULL: does not.
 */
void crash_trial_open(struct crash_trial *trial, struct crash_lab *lab,
	const struct crash_scenario *scenario, void (*mutate)(struct crash_fs *fs));
void crash_trial_close(struct crash_trial *trial);
/* After every step all systematic choices, and so many random ones while data is at risk. */
void crash_trial_check(struct crash_trial *trial, uint64_t random_choices);
gpusnap_status crash_save(struct crash_lab *lab, struct crash_fs *fs, gpusnap_registry *registry,
	const struct crash_scenario *scenario, uint8_t ret_uuid[GPUSNAP_UUID_BYTES],
	gpusnap_error *err);

#endif
