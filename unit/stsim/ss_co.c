#include "ss_co.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SS_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SS_ASAN 1
#endif

enum { STACK = 256 * 1024, POOL = 512 };

static uint8_t *pool[POOL];
static int n_pool;

/* ---- the address sanitizer has to know which stack is in use ---- */

#ifdef SS_ASAN
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
void __asan_unpoison_memory_region(void const volatile *p, size_t size);

static const void *main_bottom;
static size_t main_size;

static void before(void **fake, const struct ss_co *to)
{
    __sanitizer_start_switch_fiber(fake, to->stack ? to->stack : main_bottom,
                                   to->stack ? STACK : main_size);
}

static void after(struct ss_co *me)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(me ? me->fake : NULL, &bottom, &size);
    if (!main_bottom) { /* the first switch ever came from the process's own stack */
        main_bottom = bottom;
        main_size = size;
    }
}

static void clean(uint8_t *stack)
{
    __asan_unpoison_memory_region(stack, STACK); /* of frames that never returned */
}
#else
static void before(void **fake, const struct ss_co *to)
{
    (void)fake;
    (void)to;
}

static void after(struct ss_co *me)
{
    (void)me;
}

static void clean(uint8_t *stack)
{
    (void)stack;
}
#endif

/* ---- changing stacks ---- */

void ss_co_swap(void **save, void *load);

/* Saves what a call has to preserve on the stack, exchanges the stack pointers, and restores. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl ss_co_swap\n"
        ".type ss_co_swap, @function\n"
        "ss_co_swap:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size ss_co_swap, . - ss_co_swap\n");
/* Six registers, the address that ret goes to, and one word that keeps the stack aligned. */
enum { FRAME_WORDS = 8, ENTRY_WORD = 6 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl ss_co_swap\n"
        ".type ss_co_swap, %function\n"
        "ss_co_swap:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n"
        "  ret\n"
        ".size ss_co_swap, . - ss_co_swap\n");
enum { FRAME_WORDS = 20, ENTRY_WORD = 11 };
#else
#error "the simulation needs ss_co_swap for this processor"
#endif

static void (*entry)(void); /* one for all */

static void start(void)
{
    after(NULL);
    entry();
    __builtin_unreachable();
}

void ss_co_adopt(struct ss_co *co)
{
    memset(co, 0, sizeof(*co));
}

void ss_co_make(struct ss_co *co, void (*main)(void))
{
    memset(co, 0, sizeof(*co));
    if (n_pool) {
        co->stack = pool[--n_pool];
    } else {
        size_t guard = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *p = mmap(NULL, guard + STACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        KC_ASSERT(p != MAP_FAILED && mprotect(p, guard, PROT_NONE) == 0);
        co->stack = p + guard;
    }
    entry = main;
    void (*first)(void) = start;
    void **sp = (void **)(void *)(co->stack + STACK) - FRAME_WORDS;
    memset(sp, 0, FRAME_WORDS * sizeof(*sp));
    memcpy(sp + ENTRY_WORD, &first, sizeof(first));
    co->sp = sp;
}

void ss_co_switch(struct ss_co *from, struct ss_co *to)
{
    before(&from->fake, to);
    ss_co_swap(&from->sp, to->sp);
    after(from);
}

void ss_co_leave(struct ss_co *from, struct ss_co *to)
{
    before(NULL, to);
    ss_co_swap(&from->sp, to->sp);
    __builtin_unreachable();
}

void ss_co_drop(struct ss_co *co)
{
    clean(co->stack);
    if (n_pool < POOL) {
        pool[n_pool++] = co->stack;
    }
    co->stack = NULL;
}
