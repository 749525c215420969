/* SPDX-License-Identifier: Apache-2.0 */
/* Saves into a model of a disk, and the reader's verdict on what a power cut leaves of it. */
#include "tests/support/crash_lab.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "snapshot/save.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum {
	SMALL = 8192,	/* one block */
	LARGE = 140000, /* three */
	SET_BITS = 20,
};

/* ---- states to save ---- */

static void name_bytes(gpusnap_registry *registry, const char *name, uint32_t region,
	uint64_t offset, uint64_t bytes)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_error err;

	options.name = name;
	options.dtype = GPUSNAP_U8;
	options.rank = 1;
	options.shape = &bytes;
	options.region = region;
	options.offset = offset;
	ck_ok(gpusnap_buffer_register(registry, &options, &err));
}

static void owner_open(
	struct crash_owner *owner, gpusnap_device *device, uint64_t bytes, uint64_t seed)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t region;

	options.tag = "weights";
	owner->bytes = malloc((size_t)bytes);
	ck_assert_ptr_nonnull(owner->bytes);
	random_fill(&seed, owner->bytes, (size_t)bytes);
	ck_ok(gpusnap_registry_create(device, NULL, &owner->registry, &err));
	ck_ok(gpusnap_region_adopt(
		owner->registry, (uintptr_t)owner->bytes, bytes, &options, &region, &err));
	name_bytes(owner->registry, "w13", region, 0, 4096);
	name_bytes(owner->registry, "mask", region, 5000, 512);
}

static void owner_close(struct crash_owner *owner)
{
	gpusnap_registry_free(owner->registry);
	free(owner->bytes);
}

/* ---- sets of hashes ---- */

static struct crash_entry *set_find(struct crash_set *set, uint64_t key)
{
	uint64_t at = key;

	key |= key == 0;
	for (;; at++) {
		struct crash_entry *entry = &set->entries[at & ((1u << SET_BITS) - 1)];

		if (entry->key == key)
			return entry;
		if (!entry->key) {
			ck_assert_uint_lt(++set->count, 7u << (SET_BITS - 3));
			entry->key = key;
			entry->value = -1;
			return entry;
		}
	}
}

static void set_open(struct crash_set *set)
{
	set->entries = calloc((size_t)1 << SET_BITS, sizeof *set->entries);
	ck_assert_ptr_nonnull(set->entries);
	set->count = 0;
}

static uint64_t key_of(const void *bytes, uint64_t length)
{
	gpusnap_digest digest = gpusnap_digest_of(bytes, (size_t)length);
	uint64_t key;

	memcpy(&key, digest.bytes, sizeof key);
	return key;
}

/* ---- the reader ---- */

static const char *const verdict_names[CRASH_VERDICTS] = {
	[CRASH_OLD] = "the old file",
	[CRASH_NEW] = "the new file",
	[CRASH_INCOMPLETE] = "incomplete",
	[CRASH_WRONG] = "accepted although it is neither",
	[CRASH_ABSENT] = "absent",
};

void crash_lab_open(struct crash_lab *lab)
{
	gpusnap_error err;

	*lab = (struct crash_lab){.scratch = memfd_create("crash_model", MFD_CLOEXEC)};
	ck_assert_int_ge(lab->scratch, 0);
	(void)snprintf(
		lab->scratch_path, sizeof lab->scratch_path, "/proc/self/fd/%d", lab->scratch);
	ck_ok(gpusnap_device_open("host", &lab->device, &err));
	set_open(&lab->states);
	tempdir_make(lab->folder, NULL);
	tempdir_join(lab->parent, lab->folder, "parent.gsnap");
}

void crash_lab_close(struct crash_lab *lab)
{
	tempdir_remove(lab->folder);
	free(lab->states.entries);
	gpusnap_device_close(lab->device);
	ck_assert_int_eq(close(lab->scratch), 0);
}

bool crash_lab_accepts(const struct crash_lab *lab, const struct crash_file *file,
	uint8_t ret_uuid[GPUSNAP_UUID_BYTES])
{
	gpusnap_snapshot_open_options open = GPUSNAP_SNAPSHOT_OPEN_OPTIONS_INIT;
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	const char *folder = lab->folder;
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_error err;
	bool whole;

	ck_assert_int_eq(ftruncate(lab->scratch, (off_t)file->length), 0);
	ck_assert_int_eq(
		pwrite(lab->scratch, file->bytes, (size_t)file->length, 0), (ssize_t)file->length);
	io.depth = 1;
	open.parent_dirs = &folder;
	open.parent_dir_count = 1;
	if (gpusnap_snapshot_open_with(lab->scratch_path, &open, &snapshot, &err)) {
		ck_assert_msg(err.status == GPUSNAP_E_FORMAT || err.status == GPUSNAP_E_CORRUPT,
			"%s", err.message);
		return false;
	}
	ck_ok(gpusnap_snapshot_verify(snapshot, &io, &damage, NULL, &err));
	whole = damage.count == 0;
	gpusnap_damage_release(&damage);
	memcpy(ret_uuid, gpusnap_snapshot_seal(snapshot)->uuid, GPUSNAP_UUID_BYTES);
	gpusnap_snapshot_close(snapshot);
	return whole;
}

/* ---- one save ---- */

const struct crash_scenario crash_scenarios[] = {
	{.name = "unnamed"},
	{.name = "named", .named = true},
	{.name = "unnamed over old", .over = true, .replace = true},
	{.name = "named over old", .named = true, .over = true, .replace = true},
	{.name = "named over old, kept", .named = true, .over = true},
	{.name = "unnamed over old, kept", .over = true},
	{.name = "named, read back", .named = true, .read_back = true},
	{.name = "large unnamed over old", .over = true, .replace = true, .large = true},
	{.name = "large named", .named = true, .large = true},
	{.name = "large named over old, read back",
		.named = true,
		.over = true,
		.replace = true,
		.read_back = true,
		.large = true},
	{.name = "large named delta over old",
		.named = true,
		.over = true,
		.replace = true,
		.delta = true,
		.large = true},
	{.name = "large named over old, cancelled",
		.named = true,
		.over = true,
		.replace = true,
		.large = true,
		.cancel_at = 2},
	{.name = NULL},
};

static int cancel(void *user, uint64_t bytes_done, uint64_t bytes_total)
{
	unsigned *blocks_left = user;

	(void)bytes_done;
	(void)bytes_total;
	return --*blocks_left == 0;
}

gpusnap_status crash_save(struct crash_lab *lab, struct crash_fs *fs, gpusnap_registry *registry,
	const struct crash_scenario *scenario, uint8_t ret_uuid[GPUSNAP_UUID_BYTES],
	gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	unsigned blocks_left = scenario->cancel_at;
	gpusnap_save_report report = {.state_bytes = 0};
	gpusnap_status status;

	options.replace = scenario->replace;
	options.read_back = scenario->read_back;
	options.parent = scenario->delta ? lab->parent : NULL;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = 64 << 10;
	options.io.depth = 4;
	options.io.user = &blocks_left;
	options.io.progress = blocks_left ? cancel : NULL;
	status = gsn_save_on(&fs->table, registry, CRASH_TARGET, &options, &report, err);
	memcpy(ret_uuid, report.uuid, GPUSNAP_UUID_BYTES);
	return status;
}

static void save_old(struct crash_trial *trial)
{
	static const struct crash_scenario first = {.named = true};
	struct crash_fs *fs = malloc(sizeof *fs);
	gpusnap_error err;

	ck_assert_ptr_nonnull(fs);
	crash_open(fs, true);
	ck_ok(crash_save(trial->lab, fs, trial->owners[CRASH_OLD].registry, &first,
		trial->uuids[CRASH_OLD], &err));
	trial->files[CRASH_OLD] = crash_content(
		fs, (unsigned)crash_find(&fs->now, CRASH_TARGET), &trial->lengths[CRASH_OLD]);
	crash_close(fs);
	free(fs);
}

void crash_trial_open(struct crash_trial *trial, struct crash_lab *lab,
	const struct crash_scenario *scenario, void (*mutate)(struct crash_fs *fs))
{
	uint64_t bytes = scenario->large ? LARGE : SMALL;
	gpusnap_error err;
	int inode;

	*trial = (struct crash_trial){.lab = lab, .scenario = scenario};
	owner_open(&trial->owners[CRASH_OLD], lab->device, bytes, 1);
	owner_open(&trial->owners[CRASH_NEW], lab->device, bytes, 2);
	set_open(&trial->contents);
	save_old(trial);
	if (scenario->delta) {
		file_write(lab->parent, trial->files[CRASH_OLD], (size_t)trial->lengths[CRASH_OLD]);
		memcpy(trial->owners[CRASH_NEW].bytes, trial->owners[CRASH_OLD].bytes,
			(size_t)bytes);
		trial->owners[CRASH_NEW].bytes[0] ^= 1;
	}
	crash_open(&trial->fs, scenario->named);
	if (scenario->over)
		crash_add(&trial->fs, CRASH_TARGET, trial->files[CRASH_OLD],
			trial->lengths[CRASH_OLD]);
	if (mutate)
		mutate(&trial->fs);
	trial->result = crash_save(lab, &trial->fs, trial->owners[CRASH_NEW].registry, scenario,
		trial->uuids[CRASH_NEW], &err);
	inode = crash_find(&trial->fs.now, CRASH_TARGET);
	if (!trial->result && inode >= 0)
		trial->files[CRASH_NEW] =
			crash_content(&trial->fs, (unsigned)inode, &trial->lengths[CRASH_NEW]);
}

void crash_trial_close(struct crash_trial *trial)
{
	crash_close(&trial->fs);
	for (int i = 0; i < 2; i++) {
		owner_close(&trial->owners[i]);
		free(trial->files[i]);
	}
	free(trial->contents.entries);
}

/* ---- one state of the disk ---- */

static bool is_file(
	const struct crash_trial *trial, enum crash_verdict which, const struct crash_file *file)
{
	return trial->files[which] && file->length == trial->lengths[which] &&
	       memcmp(file->bytes, trial->files[which], (size_t)file->length) == 0;
}

static enum crash_verdict read_file_of(struct crash_trial *trial, const struct crash_file *file)
{
	struct crash_lab *lab = trial->lab;
	uint8_t uuid[GPUSNAP_UUID_BYTES];

	lab->files_read++;
	if (!crash_lab_accepts(lab, file, uuid))
		return CRASH_INCOMPLETE;
	for (int i = CRASH_OLD; i <= CRASH_NEW; i++)
		if (memcmp(uuid, trial->uuids[i], sizeof uuid) == 0 &&
			is_file(trial, (enum crash_verdict)i, file))
			return (enum crash_verdict)i;
	return CRASH_WRONG;
}

static enum crash_verdict judge(
	struct crash_trial *trial, const struct crash_file *file, uint64_t key)
{
	struct crash_entry *known = set_find(&trial->contents, key);

	if (known->value < 0)
		known->value = (int)read_file_of(trial, file);
	return (enum crash_verdict)known->value;
}

static bool target_may_be(
	const struct crash_trial *trial, enum crash_verdict verdict, bool finished)
{
	enum crash_verdict before = trial->scenario->over ? CRASH_OLD : CRASH_ABSENT;

	if (trial->result)
		return verdict == before;
	return verdict == CRASH_NEW || (!finished && verdict == before);
}

static void expect(struct crash_trial *trial, const struct crash_point *point, bool holds,
	const char *name, enum crash_verdict verdict)
{
	if (holds)
		return;
	if (trial->violations++ == 0)
		(void)snprintf(trial->first, sizeof trial->first,
			"%s, cut after step %u of %u (%s): '%s' is %s", trial->scenario->name,
			point->ops, trial->fs.op_count,
			trial->result ? "the save failed" : "the save succeeded", name,
			verdict_names[verdict]);
}

static uint64_t image_key(const struct crash_image *image, uint64_t keys[CRASH_INODES])
{
	uint64_t sum = 1;

	for (unsigned i = 0; i < CRASH_INODES; i++) {
		const struct crash_name *name = &image->folder.names[i];
		const struct crash_file *file = &image->files[name->inode];

		if (!name->name[0])
			continue;
		keys[i] = key_of(file->bytes, file->length);
		/* Temporary names are random, and not what makes two states different. */
		sum += keys[i] * (strcmp(name->name, CRASH_TARGET) == 0 ? 3 : 5);
	}
	return sum;
}

static void check_image(
	struct crash_trial *trial, const struct crash_point *point, const struct crash_image *image)
{
	bool finished = point->ops == trial->fs.op_count;
	enum crash_verdict verdict = CRASH_ABSENT;
	uint64_t keys[CRASH_INODES];
	struct crash_entry *state = set_find(&trial->lab->states,
		image_key(image, keys) ^ key_of(trial->scenario, sizeof *trial->scenario) ^
			(finished ? UINT64_MAX : 0));

	if (state->value == 0)
		return; /* met before */
	state->value = 0;
	for (unsigned i = 0; i < CRASH_INODES; i++) {
		const struct crash_name *name = &image->folder.names[i];
		enum crash_verdict found;

		if (!name->name[0])
			continue;
		found = judge(trial, &image->files[name->inode], keys[i]);
		if (strcmp(name->name, CRASH_TARGET) == 0)
			verdict = found;
		else
			expect(trial, point, found == CRASH_NEW || found == CRASH_INCOMPLETE,
				name->name, found);
	}
	expect(trial, point, target_may_be(trial, verdict, finished), CRASH_TARGET, verdict);
}

static void check_point(struct crash_trial *trial, unsigned ops, uint64_t random_choices)
{
	struct crash_point point = crash_point_at(&trial->fs, ops);
	struct crash_image image = {.folder = {{{""}}}};
	uint64_t count = crash_systematic(&point);

	/* Unless the data has a name by now, all its states look the same. */
	if (point.pending_sectors && point.pending_names)
		count += random_choices;
	for (uint64_t n = 0; n < count; n++) {
		struct crash_choice choice = crash_choice_of(&point, n);

		crash_image_make(&point, &choice, &image);
		check_image(trial, &point, &image);
	}
	trial->lab->points++;
	crash_image_free(&image);
}

void crash_trial_check(struct crash_trial *trial, uint64_t random_choices)
{
	for (unsigned ops = 0; ops <= trial->fs.op_count; ops++)
		check_point(trial, ops, random_choices);
}
