/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_SNAPSHOT_H
#define GPUSNAP_SNAPSHOT_H
/*
 * Snapshots: save a registry, offload and resume it, restore and verify it, compare files.
 *
 * Nothing is ever half done in silence: a save leaves the old file or the new one, whole; a
 * restore either ends with every byte equal to its digest or leaves the regions not usable and
 * says which buffer and leaf differ.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/io.h>
#include <gpusnap/plan.h>
#include <gpusnap/registry.h>
#include <gpusnap/seal.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files ---- */

typedef struct gpusnap_snapshot gpusnap_snapshot;

/** One buffer or raw range of the state that the file stands for. */
typedef struct gpusnap_snapshot_entry {
	const char *name; /* borrowed from the snapshot */
	gpusnap_dtype dtype;
	uint32_t rank;
	const uint64_t *shape;
	uint64_t bytes;
	uint64_t file_offset; /* 0 where not all of it is in this file, one leaf behind the other */
	uint64_t first_leaf;  /* in gpusnap_snapshot_leaves() */
	uint64_t leaf_count;
	gpusnap_digest digest; /* buffer digest, from the leaves */
} gpusnap_snapshot_entry;

/**
 * Open and check seal, header digest, plan and leaf table; data is not read. Holds the file open,
 * so that a replace or an unlink meanwhile does no harm. Read-only afterwards, may be shared.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_open(
	const char *path, gpusnap_snapshot **out, gpusnap_error *err);

typedef struct gpusnap_snapshot_open_options {
	size_t struct_size;
	/* Where to look for the parents of a delta, after its own directory; borrowed. */
	const char *const *parent_dirs;
	size_t parent_dir_count;
} gpusnap_snapshot_open_options;
#define GPUSNAP_SNAPSHOT_OPEN_OPTIONS_INIT                                                         \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_snapshot_open_options)                               \
	}

/**
 * The same, and of a delta all files of its chain, which stay open: each parent is the one with the
 * root that its child names, looked for beside the child and beside `path` under the name that it
 * had, then in `parent_dirs` under that name, then under any. A parent that is missing (E_IO),
 * another file (E_MISMATCH), damaged (E_CORRUPT) or in the chain already (E_FORMAT) is named, with
 * the first leaf that would come from it.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_open_with(const char *path,
	const gpusnap_snapshot_open_options *options, gpusnap_snapshot **out, gpusnap_error *err);
/** NULL is a no-op. */
GPUSNAP_API void gpusnap_snapshot_close(gpusnap_snapshot *snapshot);
GPUSNAP_API const char *gpusnap_snapshot_path(const gpusnap_snapshot *snapshot);
GPUSNAP_API const gpusnap_seal *gpusnap_snapshot_seal(const gpusnap_snapshot *snapshot);
GPUSNAP_API const gpusnap_plan *gpusnap_snapshot_plan(const gpusnap_snapshot *snapshot);
/** Entries in the order of the leaf table: buffers and raw ranges, without leaves and seal. */
GPUSNAP_API size_t gpusnap_snapshot_entry_count(const gpusnap_snapshot *snapshot);
GPUSNAP_API const gpusnap_snapshot_entry *gpusnap_snapshot_entry_at(
	const gpusnap_snapshot *snapshot, size_t index);
/** NULL when absent. */
GPUSNAP_API const gpusnap_snapshot_entry *gpusnap_snapshot_entry_find(
	const gpusnap_snapshot *snapshot, const char *name);
/** Files of the chain: 1 for a full snapshot. The first is the snapshot, then come its parents. */
GPUSNAP_API size_t gpusnap_snapshot_link_count(const gpusnap_snapshot *snapshot);
/** NULL beyond the last. Borrowed. */
GPUSNAP_API const char *gpusnap_snapshot_link_path(const gpusnap_snapshot *snapshot, size_t index);
GPUSNAP_API const gpusnap_seal *gpusnap_snapshot_link_seal(
	const gpusnap_snapshot *snapshot, size_t index);
/** The whole leaf table. Borrowed. */
GPUSNAP_API const gpusnap_digest *gpusnap_snapshot_leaves(const gpusnap_snapshot *snapshot);

/* ---- damage: what verify finds, first by buffer, then by leaf ---- */

typedef struct gpusnap_damage_item {
	char *buffer;
	uint64_t leaf;	      /* first wrong leaf of the buffer */
	uint64_t leaf_count;  /* wrong leaves of the buffer */
	uint64_t file_offset; /* of that leaf in the snapshot; 0 without one */
	char *file;	      /* that holds it, of a delta perhaps a parent; NULL for live state */
} gpusnap_damage_item;

typedef struct gpusnap_damage {
	size_t count;
	gpusnap_damage_item *items;
	uint64_t buffers; /* looked at */
	uint64_t bytes;
} gpusnap_damage;

/** Releases what it points to; the struct is the caller's. */
GPUSNAP_API void gpusnap_damage_release(gpusnap_damage *damage);

/**
 * Read every byte of a file and compare it with its leaf digest. OK also when damage is found:
 * look at ret_damage->count.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_verify(gpusnap_snapshot *snapshot,
	const gpusnap_io_options *io, gpusnap_damage *ret_damage, gpusnap_io_report *ret_report,
	gpusnap_error *err);

typedef struct gpusnap_difference {
	char *name;
	uint64_t leaves_changed; /* all leaves where the buffer is in one file only or resized */
	uint64_t bytes_changed;
	const char *what; /* "content", "shape", "only in first", "only in second"; static */
} gpusnap_difference;

typedef struct gpusnap_differences {
	size_t count;
	gpusnap_difference *items;
} gpusnap_differences;

/** Compare by leaf tables; no data is read. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_diff(const gpusnap_snapshot *a,
	const gpusnap_snapshot *b, gpusnap_differences *ret_differences, gpusnap_error *err);
GPUSNAP_API void gpusnap_differences_release(gpusnap_differences *differences);

typedef struct gpusnap_extract_options {
	size_t struct_size;
	gpusnap_io_options io; /* of reading; struct_size 0 inside means defaults */
	bool raw;	       /* the bytes alone; otherwise a safetensors file of one tensor */
	bool replace;	       /* an existing file is replaced; otherwise it is an error */
} gpusnap_extract_options;
#define GPUSNAP_EXTRACT_OPTIONS_INIT                                                               \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_extract_options)                                     \
	}

typedef struct gpusnap_extract_report {
	gpusnap_io_report io; /* io.bytes are the entry's */
	uint64_t file_bytes;  /* written, header included */
	gpusnap_digest digest;
} gpusnap_extract_report;

/**
 * Write one entry, a buffer or a raw range, to `path`; each leaf is proved before its bytes are
 * written. E_CORRUPT names a leaf that is not what was saved, E_INVALID a name that has no bytes in
 * the file. `path` comes to be whole and durable, or stays as it was.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_extract(gpusnap_snapshot *snapshot,
	const char *name, const char *path, const gpusnap_extract_options *options,
	gpusnap_extract_report *ret_report, gpusnap_error *err);
/**
 * The same to an open descriptor, such as a pipe, from where it stands; `replace` means nothing.
 * After a failure it has had proved bytes only, but not all.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_extract_fd(gpusnap_snapshot *snapshot,
	const char *name, int fd, const gpusnap_extract_options *options,
	gpusnap_extract_report *ret_report, gpusnap_error *err);

typedef struct gpusnap_flatten_options {
	size_t struct_size;
	gpusnap_io_options io; /* of reading; struct_size 0 inside means defaults */
	bool replace;	       /* an existing file is replaced; otherwise it is an error */
} gpusnap_flatten_options;
#define GPUSNAP_FLATTEN_OPTIONS_INIT                                                               \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_flatten_options)                                     \
	}

typedef struct gpusnap_flatten_report {
	gpusnap_io_report io; /* io.bytes is the new file's length */
	gpusnap_digest root;
} gpusnap_flatten_report;

/**
 * Write what a chain stands for as one full snapshot, with the uuid, plan and records of the
 * delta: the file that a full save would have written. Each leaf is proved on the way. E_CORRUPT
 * names one that is not what was saved, E_INVALID a `path` that is one of the delta's parents.
 * `path` comes to be whole and durable, or stays as it was.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_snapshot_flatten(gpusnap_snapshot *snapshot,
	const char *path, const gpusnap_flatten_options *options,
	gpusnap_flatten_report *ret_report, gpusnap_error *err);

/* ---- live state ---- */

typedef struct gpusnap_save_options {
	size_t struct_size;
	gpusnap_io_options io; /* struct_size 0 inside means defaults */
	bool replace;	       /* an existing file is replaced; otherwise it is an error */
	/*
	 * Read the file back from the disk and compare all of it with what was written, before it
	 * comes to its name; io.progress then counts a second time.
	 */
	bool read_back;
	/*
	 * A delta: live state is digested first, and the leaves that differ from this snapshot's
	 * are written alone. NULL: all are. Its own parents are looked for in `parent_dirs`, as
	 * gpusnap_snapshot_open_with() does.
	 */
	const char *parent;
	const char *const *parent_dirs;
	size_t parent_dir_count;
} gpusnap_save_options;
#define GPUSNAP_SAVE_OPTIONS_INIT                                                                  \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_save_options)                                        \
	}

typedef struct gpusnap_save_report {
	gpusnap_io_report io; /* io.bytes is the file's length */
	gpusnap_digest root;
	uint8_t uuid[GPUSNAP_UUID_BYTES];
	uint64_t state_bytes;
	uint64_t unclaimed_bytes;
	double read_back_seconds; /* of io.seconds */
	char read_back[224];	  /* how it was read back, and why so; empty when it was not */
	uint64_t leaves;
	uint64_t leaves_written;    /* less than all in a delta */
	uint32_t depth;		    /* of a delta; 0: a full snapshot */
	gpusnap_digest parent_root; /* zero: a full snapshot */
	double digest_seconds;	    /* of io.seconds, to find what a delta has to hold */
} gpusnap_save_report;

/**
 * Write all kept bytes of all regions to `path`. The leaf digests are of the very bytes written.
 * E_STATE unless every kept region is resident, E_BUSY when quiesce refuses, E_CORRUPT when what is
 * read back differs: names buffer, leaf and file offset. With a parent E_MISMATCH when regions or
 * buffers are not its own, E_LIMIT when its chain is as deep as may be (flatten it), E_INVALID when
 * the target is a file of that chain. On any failure the target is as before and the temporary file
 * is gone.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_save(gpusnap_registry *registry,
	const char *path, const gpusnap_save_options *options, gpusnap_save_report *ret_report,
	gpusnap_error *err);

typedef enum gpusnap_backing {
	GPUSNAP_BACKING_AUTO, /* snapshot where an arena would free nothing (host) and one matches
			       */
	GPUSNAP_BACKING_ARENA,
	GPUSNAP_BACKING_SNAPSHOT, /* the last one saved or restored, if live state still equals it
				   */
} gpusnap_backing;

typedef struct gpusnap_offload_options {
	size_t struct_size;
	const char *const *tags; /* regions with one of these; NULL: all managed ones */
	size_t tag_count;
	gpusnap_backing backing;
	gpusnap_io_options io; /* resume: how snapshots are read */
} gpusnap_offload_options;
#define GPUSNAP_OFFLOAD_OPTIONS_INIT                                                               \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_offload_options)                                     \
	}

typedef struct gpusnap_offload_report {
	uint32_t regions;
	uint64_t bytes;	       /* unmapped */
	uint64_t copied_bytes; /* to the arena; less when leaves were unchanged */
	uint64_t freed_bytes;  /* measured on the device */
	double seconds;
	char backing[320]; /* "arena", "snapshot PATH" */
} gpusnap_offload_report;

/**
 * Give device memory back; addresses stay reserved. Kept bytes go to a host arena, or are dropped
 * against an equal snapshot that is held open. E_STATE and no change when a region is offloaded
 * already, when no region matches, or when a snapshot is asked for and differs.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_offload(gpusnap_registry *registry,
	const gpusnap_offload_options *options, gpusnap_offload_report *ret_report,
	gpusnap_error *err);

typedef struct gpusnap_resume_report {
	uint32_t regions;
	uint64_t bytes;
	double seconds;
	gpusnap_io_report io; /* of the snapshot read last; engine NULL when none was */
} gpusnap_resume_report;

/**
 * Map again at the same addresses and put the bytes back, verified on the device. Tags as in
 * offload. All regions or none: when memory is short everything is unmapped again (E_NOMEM) and a
 * later call may succeed. E_STATE when nothing is offloaded.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_resume(gpusnap_registry *registry,
	const gpusnap_offload_options *options, gpusnap_resume_report *ret_report,
	gpusnap_error *err);

typedef struct gpusnap_restore_report {
	gpusnap_io_report io;
	gpusnap_digest root;
	uint64_t state_bytes;
} gpusnap_restore_report;

/**
 * Put a snapshot's bytes back into this registry, whatever its regions' state. Two phases: check
 * file, match all regions and buffers (E_MISMATCH lists all that differ: name, dtype, shape, size,
 * rank, world), map everything or roll back; then poison, copy, digest on the device, call
 * refill and remapped, mark usable. Before the first byte is overwritten every check that can
 * be made without reading data has passed. Damage of the data itself (E_CORRUPT, after a second
 * read) shows only afterwards: then regions that were offloaded are offloaded as before, those that
 * were resident are poisoned and DISCARDED. gpusnap_snapshot_verify() beforehand avoids that.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_restore(gpusnap_registry *registry,
	const char *path, const gpusnap_io_options *io, gpusnap_restore_report *ret_report,
	gpusnap_error *err);

/** The same from an open snapshot, such as a delta whose parents are in other directories. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_restore_snapshot(gpusnap_registry *registry,
	gpusnap_snapshot *snapshot, const gpusnap_io_options *io,
	gpusnap_restore_report *ret_report, gpusnap_error *err);

/**
 * A new registry from a snapshot: regions reserved, buffers, views and records registered, bytes
 * restored. `options` gives callbacks; ranks come from the plan.
 * @param out  owned by the caller.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_registry_from_snapshot(gpusnap_device *device,
	const char *path, const gpusnap_registry_options *options, const gpusnap_io_options *io,
	gpusnap_registry **out, gpusnap_restore_report *ret_report, gpusnap_error *err);

GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_registry_from_open(gpusnap_device *device,
	gpusnap_snapshot *snapshot, const gpusnap_registry_options *options,
	const gpusnap_io_options *io, gpusnap_registry **out, gpusnap_restore_report *ret_report,
	gpusnap_error *err);

/**
 * The digests that live state is held against: of a snapshot, or of live state at one moment.
 * Names and leaves only. Immutable; may be shared.
 */
typedef struct gpusnap_baseline gpusnap_baseline;

GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_baseline_from_snapshot(
	const gpusnap_snapshot *snapshot, gpusnap_baseline **out, gpusnap_error *err);
/** Digests live state on the device. Its root is over names and buffer digests. E_STATE unless all
 * that is kept is resident. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_baseline_from_live(
	gpusnap_registry *registry, gpusnap_baseline **out, gpusnap_error *err);
GPUSNAP_API void gpusnap_baseline_free(gpusnap_baseline *baseline);
GPUSNAP_API gpusnap_digest gpusnap_baseline_root(const gpusnap_baseline *baseline);
/** A JSON record that came with it ("probe"); new reference or NULL. */
GPUSNAP_API gpusnap_json *gpusnap_baseline_record(
	const gpusnap_baseline *baseline, const char *name);
/** Leaves of a buffer; NULL when it has none of that name. Borrowed. */
GPUSNAP_API const gpusnap_digest *gpusnap_baseline_leaves(
	const gpusnap_baseline *baseline, const char *name, uint64_t *ret_leaf_count);

/**
 * The registry's own baseline: set by save, restore, from_snapshot and by validate --record.
 * Borrowed, valid until the next of these; NULL when there is none. set consumes `baseline`.
 */
GPUSNAP_API const gpusnap_baseline *gpusnap_registry_baseline(const gpusnap_registry *registry);
GPUSNAP_API void gpusnap_registry_set_baseline(
	gpusnap_registry *registry, gpusnap_baseline *baseline);

/**
 * Digest live state on the device and compare it with a baseline (NULL: the registry's own;
 * E_STATE when there is none). OK also when damage is found. E_STATE unless all is resident.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_verify(gpusnap_registry *registry,
	const gpusnap_baseline *baseline, gpusnap_damage *ret_damage, gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
