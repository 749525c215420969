/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over all files of the folders that are given, in place of a fuzzing engine. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size)
{
	uint8_t *data = malloc(size ? size : 1);
	FILE *file = fopen(path, "rb");
	int failed = !data || !file || fread(data, 1, size, file) != size;

	if (failed)
		perror(path);
	else
		(void)LLVMFuzzerTestOneInput(data, size);
	if (file)
		(void)fclose(file);
	free(data);
	return failed;
}

static int replay_folder(const char *folder, int *count)
{
	DIR *stream = opendir(folder);
	char path[PATH_MAX];
	struct dirent *entry;
	struct stat status;
	int failed = 0;

	if (!stream) {
		perror(folder);
		return 1;
	}
	while (!failed && (entry = readdir(stream))) {
		(void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		if (stat(path, &status) || !S_ISREG(status.st_mode))
			continue;
		failed = replay_file(path, (size_t)status.st_size);
		(*count)++;
	}
	(void)closedir(stream);
	return failed;
}

int main(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++)
		if (replay_folder(argv[i], &count))
			return EXIT_FAILURE;
	(void)printf("%d files\n", count);
	return count ? EXIT_SUCCESS : EXIT_FAILURE;
}
