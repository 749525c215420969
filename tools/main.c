/* SPDX-License-Identifier: Apache-2.0 */
/* The command `gpusnap`: finds the subcommand and hands over. */
#include <argp.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/output.h"

static const char *const group_titles[] = {
	"Hold state:",
	"On a live process (-p PID or --socket PATH; the only one is the default):",
	"On files:",
	"On this machine:",
};

static void print_overview(FILE *stream)
{
	int group = -1;

	(void)fputs("Usage: gpusnap COMMAND [OPTION...] [ARGUMENT...]\n"
		    "Save, offload, restore and prove the memory of GPU inference processes.\n",
		stream);
	for (const struct command *c = commands; c->name; c++) {
		if (c->group != group)
			(void)fprintf(stream, "\n%s\n", group_titles[c->group]);
		group = c->group;
		(void)fprintf(stream, "  %-8s %-17s %s\n", c->name, c->arguments, c->summary);
	}
	(void)fputs("\nExit status: 0 yes, 1 no (corrupt, different, not proved), 2 usage, 3 I/O,\n"
		    "4 format, 5 device, 6 memory or limit, 7 wrong state or busy.\n"
		    "gpusnap COMMAND --help tells more; the manual is man gpusnap.\n",
		stream);
}

static const struct command *find_command(const char *name)
{
	for (const struct command *c = commands; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

/* Edits that turn one word into the other, bounded: enough to guess what was meant. */
static size_t distance(const char *a, const char *b)
{
	size_t row[32];
	size_t length = strlen(b);

	if (length >= 31 || strlen(a) >= 31)
		return 99;
	for (size_t j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < length; j++) {
			size_t change = diagonal + (a[i] != b[j]);
			size_t shift = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;

			diagonal = row[j + 1];
			row[j + 1] = change < shift ? change : shift;
		}
	}
	return row[length];
}

static int unknown_command(const char *name)
{
	const struct command *best = NULL;

	for (const struct command *c = commands; c->name; c++)
		if (!best || distance(name, c->name) < distance(name, best->name))
			best = c;
	(void)fprintf(stderr, "gpusnap: '%s' is not a command; gpusnap --help lists them\n", name);
	if (best && distance(name, best->name) <= 2)
		(void)fprintf(stderr, "hint: did you mean '%s'?\n", best->name);
	return 2;
}

static int run_command(const struct command *command, int argc, char **argv)
{
	char name[64];

	(void)snprintf(name, sizeof name, "gpusnap %s", command->name);
	argv[0] = name;
	return command->run(argc, argv);
}

static int help(int argc, char **argv)
{
	char help_option[] = "--help";
	char *help_argv[] = {NULL, help_option, NULL};
	const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;

	if (argc > 1 && !command)
		return unknown_command(argv[1]);
	if (command)
		return run_command(command, 2, help_argv);
	print_overview(stdout);
	return output_flush();
}

/*
 * A standard stream that the caller closed would be given to the next file that is opened, and a
 * message could end up in a snapshot. Read-only: writing to it fails, as it should.
 */
static void occupy_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			return;
}

int main(int argc, char **argv)
{
	const struct command *command;

	occupy_standard_streams();
	argp_err_exit_status = 2;
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		print_overview(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
		return help(argc - 1, argv + 1);
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
		(void)puts("gpusnap " GPUSNAP_VERSION);
		return output_flush();
	}
	command = find_command(argv[1]);
	if (!command)
		return unknown_command(argv[1]);
	return run_command(command, argc - 1, argv + 1);
}
