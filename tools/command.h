/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMMAND_H
#define COMMAND_H
/* The commands of `gpusnap`, one row each in command.c, one file each in cmd_*.c. */

/* argv[0] is "gpusnap NAME", for usage texts; answers the exit status. */
typedef int (*command_fn)(int argc, char **argv);

struct command {
	const char *name;
	const char *arguments; /* as the overview shows them */
	const char *summary;
	command_fn run;
	int group; /* 0: a process that holds state; 1: on a live process; 2: on files; 3: machine
		    */
};

/* NULL-named row at the end. */
extern const struct command commands[];

int cmd_bench(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_extract(int argc, char **argv);
int cmd_flatten(int argc, char **argv);
int cmd_inject(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_offload(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_save(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_verify(int argc, char **argv);

#endif
