// The chains of `chain.py` and the interpolation of `grid.py` for one stream of one float32 network on a CPU.
//
// Torch makes every product for all structures before it begins the next, and what they exchange passes
// through memory. Here a unit of work is one structure in one layer, whose arrays stay in a core's own cache.
// Names, symmetries and signs are those of `chain.py`: X_1 … X_J are modules (N, N, F), symmetric in the atoms;
// prefix, suffix, bar, dot and hat as there. Channels are last, and vectors run over them.
//
// Every result is computed by one thread in one order: it does not depend on how many threads there are.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __AVX512F__
constexpr int WIDE = 16;
#else
constexpr int WIDE = 8;
#endif

struct Stream {
    int32_t atoms, structures, layers, modules, width, rows, threads;
    const float* table;   // (J, layers, rows, F), three rows a node
    const int32_t* cell;  // (B, N, N)
    const float* value;   // (B, N, N, 6), weights of six rows; zero for padding
    const float* slope;   // (B, N, N, 6)
    // What one sweep leaves for the next. Modules and their dots are not here: to interpolate them anew takes
    // less time than to fetch them from memory. R = layers · B.
    float* prefix;        // prefix_2 … prefix_{J−1}: (J − 2, R, N, N, F)
    float* suffix;        // suffix_2 … suffix_{J−1}, as prefix
    float* prefix_dots;   // as prefix
    float* bars;          // both directions of a pair added, i ≤ k: (J, R, N (N + 1) / 2, F)
    float* hats;          // as bars

    long matrix() const { return long(atoms) * atoms * width; }
    long half() const { return long(atoms) * (atoms + 1) / 2 * width; }
    int units() const { return layers * structures; }
    float* inner(float* all, int unit, int j) const { return all + (long(j) * units() + unit) * matrix(); }
    float* folded(float* all, int unit, int j) const { return all + (long(j) * units() + unit) * half(); }
    const float* nodes(int unit, int j) const {
        return table + (long(j) * layers + unit / structures) * rows * width;
    }
    long pairs(int unit) const { return long(unit % structures) * atoms * atoms; }
};

template <int L> struct Vector;
template <> struct Vector<1> { typedef float V; };
template <> struct Vector<8> { typedef float V __attribute__((vector_size(32))); };
template <> struct Vector<16> { typedef float V __attribute__((vector_size(64))); };

template <int L> struct Lanes {
    using V = typename Vector<L>::V;
    static V load(const float* p) {
        V v;
        std::memcpy(&v, p, sizeof v);  // an unaligned load
        return v;
    }
    static void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
    static float sum(V v) {
        float parts[L], total = 0;
        std::memcpy(parts, &v, sizeof v);
        for (float part : parts) total += part;
        return total;
    }
};

// With OpenMP the threads are torch's own, which would otherwise keep the cores busy waiting for work.
template <class F> static void parallel(int threads, int count, F work) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int i = 0; i < count; ++i) work(i);
#else
    std::atomic<int> next{0};
    auto run = [&] { for (int i; (i = next++) < count;) work(i); };
    std::vector<std::thread> others;
    for (int t = 1; t < std::min(threads, count); ++t) others.emplace_back(run);
    run();
    for (auto& thread : others) thread.join();
#endif
}

// ---- three kinds of products ----------------------------------------------------------------------------
// Each is A B, or A B + sign · A′ B′, for blocks of R rows and S columns whose sums stay in registers.

struct Product { const float *a, *b; };

constexpr int TALL = WIDE == 16 ? 7 : 3;  // R, as many as there are registers for

template <class Block> static void in_blocks(int n, Block block) {
    int i = 0;
    for (; i + TALL <= n; i += TALL) block(i, std::integral_constant<int, TALL>());
    for (; i + 3 <= n; i += 3) block(i, std::integral_constant<int, 3>());
    for (; i < n; ++i) block(i, std::integral_constant<int, 1>());
}

// C (n, w). A (n, n) has strides, so that it may be transposed; B (n, w).
template <int L, int R, int S>
static void rows_block(float* c, Product p, Product q, float sign, long row, long column, int i, int n, long w, long at) {
    using T = Lanes<L>;
    typename T::V sums[R][S] = {};
    auto accumulate = [&](Product p) {
        for (int k = 0; k < n; ++k) {
            typename T::V right[S];
            for (int s = 0; s < S; ++s) right[s] = T::load(p.b + k * w + at + s * L);
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s) sums[r][s] += p.a[(i + r) * row + k * column] * right[s];
        }
    };
    if (q.a) {
        accumulate(q);
        for (auto& line : sums) for (auto& sum : line) sum *= sign;
    }
    accumulate(p);
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) T::store(c + (i + r) * w + at + s * L, sums[r][s]);
}

template <int L>
static void rows(float* c, bool turned, int n, long w, Product p, Product q = {}, float sign = 1) {
    const long row = turned ? 1 : n, column = turned ? n : 1;
    long at = 0;
    for (; at + 2 * L <= w; at += 2 * L)
        in_blocks(n, [&](int i, auto r) { rows_block<L, r, 2>(c, p, q, sign, row, column, i, n, w, at); });
    for (; at < w; at += L)
        in_blocks(n, [&](int i, auto r) { rows_block<L, r, 1>(c, p, q, sign, row, column, i, n, w, at); });
}

// α (n, n), with rows of (m, f) and Bᵀ; the sign is +.
template <int L, int R, int S>
static void contract_block(float* alpha, Product p, Product q, int i, int j, int n, long w) {
    using T = Lanes<L>;
    typename T::V sums[R][S] = {};
    auto accumulate = [&](Product p) {
        for (long at = 0; at < w; at += L) {
            typename T::V right[S];
            for (int s = 0; s < S; ++s) right[s] = T::load(p.b + (j + s) * w + at);
            for (int r = 0; r < R; ++r) {
                const auto left = T::load(p.a + (i + r) * w + at);
                for (int s = 0; s < S; ++s) sums[r][s] += left * right[s];
            }
        }
    };
    accumulate(p);
    if (q.a) accumulate(q);
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) alpha[(i + r) * n + j + s] = T::sum(sums[r][s]);
}

template <int L> static void contract(float* alpha, int n, long w, Product p, Product q = {}) {
    in_blocks(n, [&](int i, auto r) {
        int j = 0;
        for (; j + 3 <= n; j += 3) contract_block<L, r, 3>(alpha, p, q, i, j, n, w);
        for (; j < n; ++j) contract_block<L, r, 1>(alpha, p, q, i, j, n, w);
    });
}

// C (n, n, F), for every channel; `turned`: with Aᵀ and A′ᵀ.
template <int L, int R, int S>
static void channel_block(
    float* c, Product p, Product q, float sign, long row, long column, int i, int j, int n, int f, int width
) {
    using T = Lanes<L>;
    typename T::V sums[R][S] = {};
    auto accumulate = [&](Product p) {
        for (int m = 0; m < n; ++m) {
            typename T::V right[S];
            for (int s = 0; s < S; ++s) right[s] = T::load(p.b + (long(m) * n + j + s) * width + f);
            for (int r = 0; r < R; ++r) {
                const auto left = T::load(p.a + (i + r) * row + m * column + f);
                for (int s = 0; s < S; ++s) sums[r][s] += left * right[s];
            }
        }
    };
    if (q.a) {
        accumulate(q);
        for (auto& line : sums) for (auto& sum : line) sum *= sign;
    }
    accumulate(p);
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) T::store(c + (long(i + r) * n + j + s) * width + f, sums[r][s]);
}

template <int L>
static void channels(float* c, bool turned, int n, int width, Product p, Product q = {}, float sign = 1) {
    const long row = long(turned ? 1 : n) * width, column = long(turned ? n : 1) * width;
    for (int f = 0; f < width; f += L)
        in_blocks(n, [&](int i, auto r) {
            int j = 0;
            for (; j + 3 <= n; j += 3) channel_block<L, r, 3>(c, p, q, sign, row, column, i, j, n, f, width);
            for (; j < n; ++j) channel_block<L, r, 1>(c, p, q, sign, row, column, i, j, n, f, width);
        });
}

// ---- from distances to overlaps and back ----------------------------------------------------------------

template <int L> static typename Lanes<L>::V interpolate(const float* nodes, const float* weights, int width) {
    auto sum = weights[0] * Lanes<L>::load(nodes);
    for (int t = 1; t < 6; ++t) sum += weights[t] * Lanes<L>::load(nodes + long(t) * width);
    return sum;
}

// A module of a unit, or with `d_dot` its derivative along a change of the distances.
template <int L> static void fill(const Stream& s, int unit, int j, float* out, const float* d_dot) {
    const int n = s.atoms, width = s.width;
    const long first = s.pairs(unit);
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k) {
            const long pair = first + i * n + k;
            const float factor = d_dot ? d_dot[pair] : 1;
            const float* weights = (d_dot ? s.slope : s.value) + 6 * pair;
            const float* nodes = s.nodes(unit, j) + 3L * s.cell[pair] * width;
            for (int f = 0; f < width; f += L) {
                const auto v = factor * interpolate<L>(nodes + f, weights, width);
                Lanes<L>::store(out + (long(i) * n + k) * width + f, v);
                Lanes<L>::store(out + (long(k) * n + i) * width + f, v);
            }
        }
}

// (N, N, F) with both directions of a pair added.
template <int L> static void fold(const Stream& s, const float* whole, float* out) {
    const int n = s.atoms, width = s.width;
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k, out += width)
            for (int f = 0; f < width; f += L) {
                auto v = Lanes<L>::load(whole + (long(i) * n + k) * width + f);
                if (i < k) v += Lanes<L>::load(whole + (long(k) * n + i) * width + f);
                Lanes<L>::store(out + f, v);
            }
}

// Σ over modules and channels of bar · dX/dd, (N, N).
template <int L> static void pull(const Stream& s, int unit, float* out) {
    const int n = s.atoms, width = s.width;
    long place = 0;
    for (int i = 0; i < n; ++i)
        for (int k = i; k < n; ++k, place += width) {
            const long pair = s.pairs(unit) + i * n + k;
            typename Lanes<L>::V sum = {};
            for (int j = 0; j < s.modules && i < k; ++j) {  // an atom is at no distance from itself
                const float* bars = s.folded(s.bars, unit, j) + place;
                const float* nodes = s.nodes(unit, j) + 3L * s.cell[pair] * width;
                for (int f = 0; f < width; f += L)
                    sum += Lanes<L>::load(bars + f) * interpolate<L>(nodes + f, s.slope + 6 * pair, width);
            }
            out[i * n + k] = out[k * n + i] = Lanes<L>::sum(sum);
        }
}

// Some channels of a module and layer: Σ over structures and pairs of hat · value weights − bar · d(weights)/dt,
// by node. These rows stay in the fastest cache.
template <int L> static void collect(const Stream& s, int layer, int j, int f, const float* d_dot, float* by_table) {
    using T = Lanes<L>;
    const int n = s.atoms, width = s.width;
    std::vector<float> sums(long(s.rows) * L, 0.0f);
    for (int b = 0; b < s.structures; ++b) {
        const int unit = layer * s.structures + b;
        const float *hats = s.folded(s.hats, unit, j) + f, *bars = s.folded(s.bars, unit, j) + f;
        for (int i = 0; i < n; ++i)
            for (int k = i; k < n; ++k, hats += width, bars += width) {
                const long pair = s.pairs(unit) + i * n + k;
                const auto hat = T::load(hats), bar = -d_dot[pair] * T::load(bars);
                const float *value = s.value + 6 * pair, *slope = s.slope + 6 * pair;
                float* row = sums.data() + 3L * s.cell[pair] * L;
                for (int t = 0; t < 6; ++t, row += L) T::store(row, T::load(row) + value[t] * hat + slope[t] * bar);
            }
    }
    float* out = by_table + (long(j) * s.layers + layer) * s.rows * width + f;
    for (int r = 0; r < s.rows; ++r) std::memcpy(out + long(r) * width, sums.data() + long(r) * L, L * sizeof(float));
}

// ---- the four sweeps ------------------------------------------------------------------------------------

// One unit of the stream. Modules count from 0; J = last + 1.
template <int L> struct Unit {
    const Stream& s;
    const int unit, n = s.atoms, last = s.modules - 1;
    const long w = long(n) * s.width;

    // A thread's own space: fresh memory would cost more than the products.
    float* own(int place) const {
        thread_local std::vector<float> space;
        space.resize((2 * s.modules + 3) * s.matrix());
        return space.data() + place * s.matrix();
    }
    float* x(int j) const { return own(j); }
    float* dot(int j) const { return own(s.modules + j); }
    float* spare(int j) const { return own(2 * s.modules + j); }
    // X_0 … X_j, its derivative, and its adjoint.
    float* prefix(int j) const { return j ? s.inner(s.prefix, unit, j - 1) : x(0); }
    float* prefix_dot(int j) const { return j ? s.inner(s.prefix_dots, unit, j - 1) : dot(0); }
    float* suffix(int j) const { return j ? s.inner(s.suffix, unit, j - 1) : spare(0); }
    void copy(float* to, const float* from) const { std::memcpy(to, from, s.matrix() * sizeof(float)); }
    void overlaps() const { for (int j = 0; j <= last; ++j) fill<L>(s, unit, j, x(j), nullptr); }
    void dots(const float* d_dot) const { for (int j = 0; j <= last; ++j) fill<L>(s, unit, j, dot(j), d_dot); }

    void attention(float* alpha) const {
        overlaps();
        if (last == 0) return copy(alpha, x(0));
        for (int j = 1; j < last; ++j) channels<L>(prefix(j), false, n, s.width, {prefix(j - 1), x(j)});
        contract<L>(alpha, n, w, {prefix(last - 1), x(last)});
    }

    void adjoints(const float* alpha_bar) const {
        auto keep = [&](int j, const float* bar) { fold<L>(s, bar, s.folded(s.bars, unit, j)); };
        if (last == 0) return keep(0, alpha_bar);
        overlaps();
        float* bar = spare(1);
        rows<L>(bar, true, n, w, {alpha_bar, prefix(last - 1)});
        keep(last, bar);
        rows<L>(suffix(last - 1), false, n, w, {alpha_bar, x(last)});
        for (int j = last - 1; j > 0; --j) {
            channels<L>(bar, true, n, s.width, {suffix(j), prefix(j - 1)});
            keep(j, bar);
            channels<L>(suffix(j - 1), false, n, s.width, {suffix(j), x(j)});
        }
        keep(0, suffix(0));
    }

    void attention_dot(const float* d_dot, float* alpha_dot) const {
        dots(d_dot);
        if (last == 0) return copy(alpha_dot, dot(0));
        overlaps();
        for (int j = 1; j < last; ++j)
            channels<L>(prefix_dot(j), false, n, s.width, {prefix_dot(j - 1), x(j)}, {prefix(j - 1), dot(j)});
        contract<L>(alpha_dot, n, w, {prefix_dot(last - 1), x(last)}, {prefix(last - 1), dot(last)});
    }

    void hats(const float* alpha_bar, const float* alpha_hat, const float* d_dot) const {
        auto keep = [&](int j, const float* hat) { fold<L>(s, hat, s.folded(s.hats, unit, j)); };
        if (last == 0) return keep(0, alpha_hat);
        overlaps();
        dots(d_dot);
        float *suffix_hat = spare(0), *next = spare(1), *hat = spare(2);
        rows<L>(hat, true, n, w, {alpha_hat, prefix(last - 1)}, {alpha_bar, prefix_dot(last - 1)}, -1);
        keep(last, hat);
        rows<L>(suffix_hat, false, n, w, {alpha_hat, x(last)}, {alpha_bar, dot(last)}, -1);
        for (int j = last - 1; j > 0; --j) {
            channels<L>(hat, true, n, s.width, {suffix_hat, prefix(j - 1)}, {suffix(j), prefix_dot(j - 1)}, -1);
            keep(j, hat);
            channels<L>(next, false, n, s.width, {suffix_hat, x(j)}, {suffix(j), dot(j)}, -1);
            std::swap(suffix_hat, next);
        }
        keep(0, suffix_hat);
    }
};

template <int L>
static void gradient(const Stream& s, const float* alpha_bar, const float* alpha_hat, const float* d_dot, float* by_table) {
    const int square = s.atoms * s.atoms, blocks = s.width / L;
    parallel(s.threads, s.units(), [&](int u) { Unit<L>{s, u}.hats(alpha_bar + long(u) * square, alpha_hat + long(u) * square, d_dot); });
    parallel(s.threads, s.modules * s.layers * blocks, [&](int task) {
        const int group = task / blocks;
        collect<L>(s, group % s.layers, group / s.layers, task % blocks * L, d_dot, by_table);
    });
}

// Vectors as wide as the processor's, where the channels fill them; one by one for k = 2, which has one channel.
#define BY_WIDTH(call)                          \
    if (s->width % WIDE == 0) {                 \
        constexpr int L = WIDE;                 \
        call;                                   \
    } else if (s->width % 8 == 0) {             \
        constexpr int L = 8;                    \
        call;                                   \
    } else {                                    \
        constexpr int L = 1;                    \
        call;                                   \
    }
#define EACH_UNIT(call) BY_WIDTH(parallel(s->threads, s->units(), [&](int u) { call; }))

extern "C" {
void geomatt_attention(const Stream* s, float* alpha) {
    const long square = long(s->atoms) * s->atoms;
    EACH_UNIT(Unit<L>({*s, u}).attention(alpha + u * square))
}
void geomatt_by_distance(const Stream* s, const float* alpha_bar, float* out) {
    const long square = long(s->atoms) * s->atoms;
    EACH_UNIT((Unit<L>({*s, u}).adjoints(alpha_bar + u * square), pull<L>(*s, u, out + u * square)))
}
void geomatt_attention_dot(const Stream* s, const float* d_dot, float* alpha_dot) {
    const long square = long(s->atoms) * s->atoms;
    EACH_UNIT(Unit<L>({*s, u}).attention_dot(d_dot, alpha_dot + u * square))
}
void geomatt_gradient(
    const Stream* s, const float* alpha_bar, const float* alpha_hat, const float* d_dot, float* by_table
) {
    BY_WIDTH(gradient<L>(*s, alpha_bar, alpha_hat, d_dot, by_table))
}
}
