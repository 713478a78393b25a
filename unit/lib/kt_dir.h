/* kt_dir.h - a directory of the test's own, below $TMPDIR, and files in it. */
#ifndef KT_DIR_H
#define KT_DIR_H

enum { KT_DIR_MAX = 64 };

void kt_dir_make(char dir[KT_DIR_MAX]);
/* With all that is in it; the test fails if something stays. */
void kt_dir_remove(const char *dir);
/* Replaces the file whole, by a rename: a reader sees the old text or the new one. */
void kt_file_write(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
