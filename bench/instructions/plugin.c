/* A plugin of qemu-user: counts the instructions that are executed in functions whose symbol has one of the
 * given texts in it, and prints the sum.
 *
 *   qemu-aarch64 -plugin libinstructions.so,in=TEXT,in=TEXT -d plugin PROGRAM
 *
 * Of QEMU's interface for plugins, version 1, only what is used is declared here: its header is not installed
 * with Debian's qemu-user. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SEEN_BY_QEMU __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { ADD_TO_COUNTER };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t place);
const char* qemu_plugin_insn_symbol(const struct qemu_plugin_insn* instruction);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t, struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn* instruction, enum qemu_plugin_op op,
                                                void* counter, uint64_t amount);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void*), void* data);
void qemu_plugin_outs(const char* text);

SEEN_BY_QEMU int qemu_plugin_version = 1;

enum { MOST_TEXTS = 8 };
static const char* texts[MOST_TEXTS];
static int text_count;
static uint64_t executed; /* of one thread: programs that are counted have no other */

static bool is_counted(const char* symbol) {
  if (symbol == NULL) return false;
  for (int i = 0; i < text_count; ++i) {
    if (strstr(symbol, texts[i]) != NULL) return true;
  }
  return false;
}

static void translated(uint64_t id, struct qemu_plugin_tb* block) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(block);
  for (size_t i = 0; i < count; ++i) {
    struct qemu_plugin_insn* instruction = qemu_plugin_tb_get_insn(block, i);
    if (!is_counted(qemu_plugin_insn_symbol(instruction))) continue;
    qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD_TO_COUNTER, &executed, 1);
  }
}

static void ended(uint64_t id, void* data) {
  (void)id;
  (void)data;
  char line[64];
  snprintf(line, sizeof line, "instructions %" PRIu64 "\n", executed);
  qemu_plugin_outs(line);
}

SEEN_BY_QEMU int qemu_plugin_install(uint64_t id, const void* info, int count, char** arguments) {
  (void)info;
  for (int i = 0; i < count; ++i) {
    if (strncmp(arguments[i], "in=", 3) != 0 || text_count == MOST_TEXTS) return -1;
    texts[text_count++] = strdup(arguments[i] + 3);
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
