/* The shell of the busybox image. Debian's busybox drops environment variables whose names are not
 * identifiers, which the image that this one stands for keeps; bash keeps them too, but words its
 * errors otherwise. So bash is called where there are such names, and busybox where there are none. */
#include <string.h>
#include <unistd.h>

extern char **environ;

static int is_identifier(const char *variable) {
  size_t length = strcspn(variable, "=");
  if (length == 0 || strchr("0123456789", variable[0]))
    return 0;
  return strspn(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") >= length;
}

int main(int argc, char **argv) {
  (void)argc;
  const char *shell = "/bin/busybox";
  for (char **variable = environ; *variable; variable++)
    if (!is_identifier(*variable))
      shell = "/bin/bash-static";
  execv(shell, argv);
  return 127;
}
