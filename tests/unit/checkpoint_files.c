/* SPDX-License-Identifier: Apache-2.0 */
/* Opening checkpoint directories, whole and damaged: every damage has one message. */
#include "loader/checkpoint.h"
#include "tests/support/checkpoint_copy.h"

static char scratch[PATH_MAX];

#define INDEX	"model.safetensors.index.json"
#define SHARD_1 "model-00001-of-00003.safetensors"
#define SHARD_2 "model-00002-of-00003.safetensors"
#define SHARD_3 "model-00003-of-00003.safetensors"

/* A copy of mixtral's checkpoint: three shards, an index. */
static void make_copy(char folder[PATH_MAX])
{
	tempdir_make(folder, scratch);
	copy_checkpoint(GPUSNAP_TEST_DATA "/checkpoints/mixtral", folder);
}

static void refuse(const char *folder, gpusnap_status expected, const char *text)
{
	struct gsn_checkpoint checkpoint;
	gpusnap_error err;

	ck_fails(gsn_checkpoint_open(folder, NULL, &checkpoint, &err), expected, text);
	tempdir_remove(folder);
}

START_TEST(tensors_are_found_where_the_files_hold_them)
{
	const char *directory = GPUSNAP_TEST_DATA "/checkpoints/qwen3_moe_fp8";
	struct test_checkpoint *expected = test_checkpoint_read(directory);
	struct gsn_checkpoint checkpoint;
	gpusnap_error err;

	ck_ok(gsn_checkpoint_open(directory, NULL, &checkpoint, &err));
	ck_assert_uint_eq(checkpoint.shard_count, 4);
	ck_assert_uint_eq(checkpoint.tensor_count, expected->tensor_count);
	for (size_t i = 0; i < expected->tensor_count; i++) {
		const struct test_tensor *t = &expected->tensors[i];
		const struct gsn_checkpoint_tensor *found =
			gsn_checkpoint_find(&checkpoint, t->name);
		uint8_t *bytes = calloc(t->bytes, 1);

		ck_assert_ptr_nonnull(found);
		ck_assert_ptr_nonnull(bytes);
		ck_assert_uint_eq(found->tensor->end - found->tensor->begin, t->bytes);
		ck_ok(gsn_source_file_read(&checkpoint.shards[found->shard].file, bytes, t->bytes,
			found->offset, &err));
		ck_assert_mem_eq(bytes, t->data, t->bytes);
		free(bytes);
	}
	ck_assert_ptr_null(gsn_checkpoint_find(&checkpoint, "model.layers.0"));
	ck_ok(gsn_checkpoint_unchanged(&checkpoint, &err));
	gsn_checkpoint_close(&checkpoint);
	test_checkpoint_free(expected);
}
END_TEST

START_TEST(order_follows_numbers_inside_names)
{
	struct gsn_checkpoint checkpoint;
	size_t second, tenth;
	gpusnap_error err;

	ck_ok(gsn_checkpoint_open(
		GPUSNAP_TEST_DATA "/checkpoints/qwen3_moe", NULL, &checkpoint, &err));
	second = (size_t)(gsn_checkpoint_find(
				  &checkpoint, "model.layers.0.mlp.experts.2.up_proj.weight") -
			  checkpoint.tensors);
	tenth = (size_t)(gsn_checkpoint_find(
				 &checkpoint, "model.layers.0.mlp.experts.10.up_proj.weight") -
			 checkpoint.tensors);
	ck_assert_uint_lt(second, tenth);
	gsn_checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(directories_that_are_none_are_refused)
{
	struct gsn_checkpoint checkpoint;
	char folder[PATH_MAX], path[PATH_MAX];
	gpusnap_error err;

	tempdir_make(folder, scratch);
	tempdir_join(path, folder, "absent");
	ck_fails(gsn_checkpoint_open(path, NULL, &checkpoint, &err), GPUSNAP_E_IO,
		"No such file or directory");
	file_write(path, "x", 1);
	ck_fails(gsn_checkpoint_open(path, NULL, &checkpoint, &err), GPUSNAP_E_IO,
		"is not a directory");
	refuse(folder, GPUSNAP_E_IO,
		"holds neither model.safetensors.index.json nor model.safetensors");
}
END_TEST

START_TEST(links_are_followed_and_dangling_ones_named)
{
	char folder[PATH_MAX], blob[PATH_MAX], link[PATH_MAX];
	struct gsn_checkpoint checkpoint;
	gpusnap_error err;

	make_copy(folder);
	tempdir_join(link, folder, SHARD_2);
	tempdir_join(blob, folder, "0a1b2c");
	assert(rename(link, blob) == 0 && symlink("0a1b2c", link) == 0);
	ck_ok(gsn_checkpoint_open(folder, NULL, &checkpoint, &err));
	ck_ok(gsn_checkpoint_unchanged(&checkpoint, &err));
	gsn_checkpoint_close(&checkpoint);
	assert(unlink(blob) == 0);
	refuse(folder, GPUSNAP_E_IO, SHARD_2 ": No such file or directory");
}
END_TEST

START_TEST(missing_shards_are_named)
{
	char folder[PATH_MAX], path[PATH_MAX];

	make_copy(folder);
	tempdir_join(path, folder, SHARD_3);
	assert(unlink(path) == 0);
	refuse(folder, GPUSNAP_E_IO, "shard 3 of 3 in model.safetensors.index.json");
	make_copy(folder);
	tempdir_join(path, folder, SHARD_3);
	assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
	refuse(folder, GPUSNAP_E_IO, "is not a regular file");
}
END_TEST

START_TEST(truncated_shards_and_pointers_are_named)
{
	static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
				      "oid sha256:0000000000000000000000000000000000000000000000"
				      "000000000000000000\nsize 657848\n";
	char folder[PATH_MAX], path[PATH_MAX];

	make_copy(folder);
	tempdir_join(path, folder, SHARD_2);
	assert(truncate(path, 600000) == 0);
	refuse(folder, GPUSNAP_E_FORMAT, SHARD_2);
	make_copy(folder);
	tempdir_join(path, folder, SHARD_1);
	assert(truncate(path, 5) == 0);
	refuse(folder, GPUSNAP_E_FORMAT, SHARD_1);
	make_copy(folder);
	tempdir_join(path, folder, SHARD_1);
	file_write(path, pointer, sizeof pointer - 1);
	refuse(folder, GPUSNAP_E_FORMAT, "LFS");
	make_copy(folder);
	tempdir_join(path, folder, INDEX);
	file_write(path, pointer, sizeof pointer - 1);
	refuse(folder, GPUSNAP_E_FORMAT, "Git-LFS pointer");
}
END_TEST

START_TEST(index_and_shards_must_agree)
{
	char folder[PATH_MAX];

	make_copy(folder);
	replace_in_file(folder, INDEX, "\"model.norm.weight\": \"" SHARD_3,
		"\"model.norm.weight\": \"" SHARD_2);
	refuse(folder, GPUSNAP_E_FORMAT,
		"maps tensor 'model.norm.weight' to " SHARD_2 ", which does not hold it");
	make_copy(folder);
	replace_in_file(folder, INDEX, "\"model.norm.weight\": \"" SHARD_3 "\"",
		"\"no.such.weight\": \"" SHARD_3 "\"");
	refuse(folder, GPUSNAP_E_FORMAT, "maps tensor 'no.such.weight'");
	make_copy(folder);
	replace_in_file(folder, INDEX, "\"lm_head.weight\": \"" SHARD_1 "\",", "");
	refuse(folder, GPUSNAP_E_FORMAT, "tensor 'lm_head.weight' of " SHARD_1 " is not in");
	make_copy(folder);
	replace_in_file(folder, INDEX, "\"lm_head.weight\": \"" SHARD_1 "\",",
		"\"lm_head.weight\": \"" SHARD_1 "\", \"lm_head.weight\": \"" SHARD_1 "\",");
	refuse(folder, GPUSNAP_E_FORMAT, INDEX " names tensor 'lm_head.weight' twice");
	make_copy(folder);
	replace_in_file(folder, INDEX, "\"lm_head.weight\":", "\"lm_head.weight\\u0000\":");
	refuse(folder, GPUSNAP_E_FORMAT, "maps tensor 'lm_head.weight\\x00' to " SHARD_1);
}
END_TEST

START_TEST(a_tensor_in_two_shards_is_refused)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct test_checkpoint *two;

	make_copy(folder);
	two = test_checkpoint_read(folder);
	/* The first shard takes up everything; the others still hold their part. */
	test_checkpoint_write(two, folder, SHARD_1);
	test_checkpoint_free(two);
	tempdir_join(path, folder, SHARD_1);
	refuse(folder, GPUSNAP_E_FORMAT, "and again in");
}
END_TEST

START_TEST(shard_names_never_leave_the_directory)
{
	static const char *const names[] = {"../x.safetensors", "/etc/passwd", "..", ".", ""};
	char folder[PATH_MAX], json[256];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		make_copy(folder);
		(void)snprintf(json, sizeof json, "\"model.norm.weight\": \"%s\"", names[i]);
		replace_in_file(folder, INDEX, "\"model.norm.weight\": \"" SHARD_3 "\"", json);
		refuse(folder, GPUSNAP_E_FORMAT, "is not a plain file name");
	}
	make_copy(folder);
	replace_in_file(folder, INDEX, "\"model.norm.weight\": \"" SHARD_3 "\"",
		"\"model.norm.weight\": 7");
	refuse(folder, GPUSNAP_E_FORMAT, "'model.norm.weight' is not a string");
}
END_TEST

START_TEST(malformed_indexes_are_refused)
{
	static const char *const texts[] = {"", "[]", "{}", "{\"weight_map\": {}}",
		"{\"weight_map\": []}", "{\"weight_map\"", "{\"weight_map\": {}} {}",
		"{\"weight_map\": {}, \"weight_map\": {}}"};
	char folder[PATH_MAX], path[PATH_MAX];

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		make_copy(folder);
		tempdir_join(path, folder, INDEX);
		file_write(path, texts[i], strlen(texts[i]));
		refuse(folder, GPUSNAP_E_FORMAT, INDEX);
	}
}
END_TEST

START_TEST(a_stray_single_file_beside_an_index_is_refused)
{
	char folder[PATH_MAX], from[PATH_MAX], to[PATH_MAX];

	make_copy(folder);
	tempdir_join(from, folder, SHARD_1);
	tempdir_join(to, folder, "model.safetensors");
	copy_file(from, to);
	refuse(folder, GPUSNAP_E_FORMAT, "remove the one that is stale");
}
END_TEST

START_TEST(tensor_names_that_cannot_be_used_are_refused)
{
	static const char header[] = "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],"
				     "\"data_offsets\":[0,1]}}    ";
	uint8_t file[8 + sizeof header] = {sizeof header - 1};
	char folder[PATH_MAX], path[PATH_MAX];

	memcpy(file + 8, header, sizeof header - 1);
	tempdir_make(folder, scratch);
	tempdir_join(path, folder, "model.safetensors");
	file_write(path, file, sizeof file);
	refuse(folder, GPUSNAP_E_FORMAT, "is empty or holds a NUL character");
}
END_TEST

/* Every odd file, as a checkpoint: what is no safetensors file is refused by its name. */
static void check_odd_file(const char *name, bool accepted)
{
	char folder[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
	struct gsn_checkpoint checkpoint;
	gpusnap_status st;
	gpusnap_error err;

	tempdir_make(folder, scratch);
	tempdir_join(from, GPUSNAP_TEST_DATA "/safetensors", name);
	tempdir_join(to, folder, "model.safetensors");
	copy_file(from, to);
	st = gsn_checkpoint_open(folder, NULL, &checkpoint, &err);
	if (st) {
		ck_assert_msg(st == GPUSNAP_E_FORMAT || st == GPUSNAP_E_UNSUPPORTED, "%s: %s", name,
			gpusnap_status_name(st));
		ck_assert_ptr_nonnull(strstr(err.message, to));
		ck_assert_ptr_null(strchr(err.message, '\n'));
	} else {
		ck_assert_msg(accepted, "%s is taken", name);
		gsn_checkpoint_close(&checkpoint);
	}
	tempdir_remove(folder);
}

START_TEST(odd_files_are_refused_by_name)
{
	char line[256], name[128], expected[16];
	FILE *index = fopen(GPUSNAP_TEST_DATA "/safetensors/index.tsv", "r");
	int count = 0;

	ck_assert_ptr_nonnull(index);
	ck_assert_ptr_nonnull(fgets(line, sizeof line, index));
	for (; fgets(line, sizeof line, index); count++) {
		ck_assert_int_eq(sscanf(line, "%127[^\t]\t%15[^\t]", name, expected), 2);
		check_odd_file(name, strcmp(expected, "reject") != 0);
	}
	ck_assert_int_eq(fclose(index), 0);
	ck_assert_int_ge(count, 62);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		tensors_are_found_where_the_files_hold_them,
		order_follows_numbers_inside_names,
		directories_that_are_none_are_refused,
		links_are_followed_and_dangling_ones_named,
		missing_shards_are_named,
		truncated_shards_and_pointers_are_named,
		index_and_shards_must_agree,
		a_tensor_in_two_shards_is_refused,
		shard_names_never_leave_the_directory,
		malformed_indexes_are_refused,
		a_stray_single_file_beside_an_index_is_refused,
		tensor_names_that_cannot_be_used_are_refused,
		odd_files_are_refused_by_name,
	};
	int result;

	tempdir_make(scratch, NULL);
	result = RUN_SUITE("checkpoint_files", tests);
	tempdir_remove(scratch);
	return result;
}
