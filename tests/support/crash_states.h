/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_CRASH_STATES_H
#define GPUSNAP_TEST_CRASH_STATES_H
/*
 * What a disk may hold after a power cut: the journal of a crash_fs up to one step, in which every
 * step that no fsync covers is applied, or dropped, or (written bytes, by sectors) garbage, each
 * independently of the others. A rename is atomic, but may leave the old name as well.
 */
#include "tests/support/crash_fs.h"

enum { CRASH_SECTOR = 512 };

/* The disk between two steps. */
struct crash_point {
	const struct crash_fs *fs;
	unsigned ops; /* steps done before the cut */
	unsigned pending_names, pending_resizes;
	uint64_t pending_sectors; /* of CRASH_SECTOR bytes, each write counted from its start */
	uint64_t name_choices;
};

/* What became of the steps that are not durable. */
struct crash_choice {
	uint64_t names;	   /* 0 to name_choices - 1; 0: all applied */
	unsigned resizes;  /* a bit for each: dropped */
	uint64_t unit;	   /* what befalls data befalls so many bytes together */
	uint64_t at;	   /* this sector alone; UINT64_MAX: see per_1024 */
	unsigned per_1024; /* share of units that are not applied */
	bool drops, fills; /* which, when both, by chance */
	uint64_t seed;
};

struct crash_file {
	uint8_t *bytes;
	uint64_t length, room;
};

struct crash_image {
	struct crash_folder folder;
	struct crash_file files[CRASH_INODES]; /* content of those that have a name */
};

struct crash_point crash_point_at(const struct crash_fs *fs, unsigned ops);
/* So many choices are systematic: every name choice with no fault, all faults, each sector's. */
uint64_t crash_systematic(const struct crash_point *point);
/* The n-th choice; from crash_systematic() on they are random and without end. */
struct crash_choice crash_choice_of(const struct crash_point *point, uint64_t n);
/* May be used again and again; crash_image_free() in the end. */
void crash_image_make(const struct crash_point *point, const struct crash_choice *choice,
	struct crash_image *image);
void crash_image_free(struct crash_image *image);

#endif
