// Energies, forces and gradients of one float32 network on a CPU: the dense engine, with tables of the overlaps.
//
// In torch every operation runs over all structures, with a call for each, and intermediate results pass
// through memory. Here all operations on one structure, or on one layer of one of its streams, run together,
// on arrays that stay in the cache of a core.
//
// As in `dense/streams.py` features are carried as coefficients c over vectors T that all atoms share. The vectors
// and the readout's weights are one matrix here ("into", made by the caller), so that features are never formed:
// hidden = c · into. c is doubled by every layer, c ← [c, α c], so the coefficients before a layer are the first
// columns of those after it, and so are their derivatives.
//
// Every number is computed by one thread in a fixed order, so results do not depend on the number of threads.

#include <cmath>

#include "chains.hpp"

struct Program {
    int32_t atoms, structures, layers, streams, first, last_node, hidden, threads;
    double step;             // between nodes
    Stream* stream;          // (S)
    const int64_t* numbers;  // (B, N), zero for padding
    const float* positions;  // (B, N, 3)
    const float* start;      // (B, N, first), the coefficients c before the first layer
    const float* into;       // (S · R, H), the vectors T times the weights of the hidden layer
    const float* from;       // (H, S · R), its transpose
    const float* bias;       // (H)
    const float* output;     // (H), then the output's bias and the shift of the softplus
    // Grid interval, interpolation weights and direction (from k to i) of every pair.
    int32_t* cell;           // (B, N, N)
    float *value, *slope;    // (B, N, N, 6)
    float* direction;        // (B, N, N, 3)
    // Coefficients and hidden layer, with adjoints, derivatives and hats.
    float *c, *c_bar, *c_dot, *c_hat;                               // (B, N, S · R)
    float *act, *sigmoid, *hidden_bar, *hidden_hat, *by_output;     // (B, N, H)
    float* atomic;           // (B, N)
    float* forces;           // (B, N, 3)
    // For a gradient: derivatives of the loss with respect to energies (B) and forces (B, N, 3).
    const float *by_energy, *by_forces;
    float* d_dot;            // (B, N, N)

    int width() const { return first << layers; }  // R
    int across() const { return streams * width(); }
    int units() const { return layers * structures; }
};

// As in engine.py.
static_assert(sizeof(Program) == 248 && sizeof(Stream) == 144, "the layouts must agree");

// For one structure: everything that is not a chain.
struct Structure {
    const Program& p;
    const int b, n = p.atoms, h = p.hidden, across = p.across();
    const long square = long(n) * n, row = long(b) * n;
    const int64_t* numbers = p.numbers + row;
    float *c = p.c + row * across, *c_bar = p.c_bar + row * across;
    float *c_dot = p.c_dot + row * across, *c_hat = p.c_hat + row * across;
    float *act = p.act + row * h, *sigmoid = p.sigmoid + row * h;
    float *hidden_bar = p.hidden_bar + row * h, *hidden_hat = p.hidden_hat + row * h;

    // Nodes, weights and directions of all pairs. In float64: float32 would lose digits to cancellation.
    void places() const {
        const float* r = p.positions + 3 * row;
        for (int i = 0; i < n; ++i)
            for (int k = i; k < n; ++k) {
                const long pair = b * square + i * n + k;
                float* e = p.direction + 3 * pair;
                float squared = 0;
                for (int x = 0; x < 3; ++x) {
                    e[x] = r[3 * i + x] - r[3 * k + x];
                    squared += e[x] * e[x];
                }
                const float distance = std::sqrt(squared), inverse = squared > 0 ? 1 / distance : 0;
                for (int x = 0; x < 3; ++x) e[x] *= inverse;
                const bool real = numbers[i] > 0 && numbers[k] > 0;
                const double far = p.last_node, at = distance / p.step, u = at < far ? at : far;
                const int node = real ? int(u) : 0;
                // NaN positions must give NaN results, not those of distant atoms.
                const double there = !real ? 0 : at == at ? 1 : at;
                weights(u - node, there, p.value + 6 * pair, p.slope + 6 * pair);
                p.cell[pair] = node;
            }
    }

    // The six quintic Hermite polynomials at t, and their slopes.
    void weights(double t, double there, float* value, float* slope) const {
        const double t2 = t * t, t3 = t2 * t, t4 = t3 * t, t5 = t4 * t, per = there / p.step;
        const double rise = 10 * t3 - 15 * t4 + 6 * t5, rise_slope = 30 * t2 - 60 * t3 + 30 * t4;
        const double values[] = {
            1 - rise, t - 6 * t3 + 8 * t4 - 3 * t5, 0.5 * t2 - 1.5 * t3 + 1.5 * t4 - 0.5 * t5,
            rise, -4 * t3 + 7 * t4 - 3 * t5, 0.5 * t3 - t4 + 0.5 * t5,
        };
        const double slopes[] = {
            -rise_slope, 1 - 18 * t2 + 32 * t3 - 15 * t4, t - 4.5 * t2 + 6 * t3 - 2.5 * t4,
            rise_slope, -12 * t2 + 28 * t3 - 15 * t4, 1.5 * t2 - 4 * t3 + 2.5 * t4,
        };
        for (int k = 0; k < 6; ++k) {
            value[k] = float(there * values[k]);
            slope[k] = float(per * slopes[k]);
        }
    }

    // α of a stream and layer, or an array of the same shape (adjoint, derivative, hat).
    float* of(float* Stream::*which, int s, int layer) const {
        const Stream& stream = p.stream[s];
        return stream.square(stream.*which, layer * p.structures + b);
    }
    // For every stream and layer: where its coefficients begin, and how many there are.
    template <class F> void each_layer(bool back, F work) const {
        for (int s = 0; s < p.streams; ++s)
            for (int step = 0; step < p.layers; ++step) {
                const int layer = back ? p.layers - 1 - step : step;
                work(s, layer, s * p.width(), p.first << layer);
            }
    }
    // (n, w) = α x, or αᵀ x, or added.
    void apply(float* out, bool turned, int w, Product one, Product two = {}, float sign = 1, bool add = false) const {
        const Rows shape = {n, n, w, turned ? 1 : n, turned ? n : 1, across, across};
        by_lanes(w, [&](auto l) { rows<l>(shape, out, one, two, sign, add); });
    }
    // (n, n) = x x′ᵀ.
    void outer(float* out, int w, Product one, Product two = {}) const {
        by_lanes(w, [&](auto l) { contract<l>(out, n, w, across, one, two, -1); });
    }
    // (n, to) = x (n, from) · matrix.
    void transform(float* out, const float* x, const float* matrix, int from, int to) const {
        const Rows shape = {n, from, to, from, 1, to, to};
        by_lanes(to, [&](auto l) { rows<l>(shape, out, {x, matrix}); });
    }

    void energies() const {
        for (int i = 0; i < n; ++i)
            for (int s = 0; s < p.streams; ++s)
                std::copy_n(p.start + (row + i) * p.first, p.first, c + i * across + s * p.width());
        each_layer(false, [&](int s, int layer, int at, int w) {
            apply(c + at + w, false, w, {of(&Stream::alpha, s, layer), c + at});
        });
        transform(act, c, p.into, across, h);
        for (int i = 0; i < n; ++i) {
            float total = p.output[h];
            for (int f = 0; f < h; ++f) {
                const int at = i * h + f;
                const float x = act[at] + p.bias[f], small = std::exp(-std::abs(x));
                act[at] = std::max(x, 0.0f) + std::log(1 + small) - p.output[h + 1];
                sigmoid[at] = (x < 0 ? small : 1) / (1 + small);
                total += act[at] * p.output[f];
            }
            p.atomic[row + i] = numbers[i] > 0 ? total : 0;
        }
    }

    void adjoints() const {
        for (int i = 0; i < n; ++i)
            for (int f = 0; f < h; ++f)
                hidden_bar[i * h + f] = numbers[i] > 0 ? sigmoid[i * h + f] * p.output[f] : 0;
        transform(c_bar, hidden_bar, p.from, h, across);
        each_layer(true, [&](int s, int layer, int at, int w) {
            outer(of(&Stream::alpha_bar, s, layer), w, {c_bar + at + w, c + at});
            if (layer) apply(c_bar + at, true, w, {of(&Stream::alpha, s, layer), c_bar + at + w}, {}, 1, true);
        });
    }

    // −∂E/∂r from ∂E/∂d summed over all streams and layers.
    void forces() const {
        float* f = p.forces + 3 * row;
        std::fill_n(f, 3 * n, 0.0f);
        for (int i = 0; i < n; ++i)
            for (int k = i + 1; k < n; ++k) {
                float pull = 0;
                for (int s = 0; s < p.streams; ++s)
                    for (int layer = 0; layer < p.layers; ++layer) pull += of(&Stream::pull, s, layer)[i * n + k];
                const float* e = p.direction + 3 * (b * square + i * n + k);
                for (int x = 0; x < 3; ++x) {
                    f[3 * i + x] -= pull * e[x];
                    f[3 * k + x] += pull * e[x];
                }
            }
    }

    // The change of the distances along ∂loss/∂F.
    void rates() const {
        const float* u = p.by_forces + 3 * row;
        for (int i = 0; i < n; ++i)
            for (int k = i; k < n; ++k) {
                const long pair = b * square + i * n + k;
                float along = 0;
                for (int x = 0; x < 3; ++x) along += (u[3 * i + x] - u[3 * k + x]) * p.direction[3 * pair + x];
                p.d_dot[pair] = along;
            }
    }

    void hats() const {
        for (int i = 0; i < n; ++i) std::fill_n(c_dot + i * across, across, 0.0f);
        each_layer(false, [&](int s, int layer, int at, int w) {
            apply(c_dot + at + w, false, w, {of(&Stream::alpha_dot, s, layer), c + at},
                  {of(&Stream::alpha, s, layer), c_dot + at});
        });
        transform(hidden_hat, c_dot, p.into, across, h);  // overwritten below
        const float by_energy = p.by_energy[b];
        for (int i = 0; i < n; ++i)
            for (int f = 0; f < h; ++f) {
                const int at = i * h + f;
                const float w = numbers[i] > 0 ? by_energy : 0;
                const float act_dot = numbers[i] > 0 ? sigmoid[at] * hidden_hat[at] : 0;
                p.by_output[row * h + at] = w * act[at] - act_dot;
                hidden_hat[at] = (w * sigmoid[at] - act_dot * (1 - sigmoid[at])) * p.output[f];
            }
        transform(c_hat, hidden_hat, p.from, h, across);
        each_layer(true, [&](int s, int layer, int at, int w) {
            const float *alpha = of(&Stream::alpha, s, layer), *alpha_dot = of(&Stream::alpha_dot, s, layer);
            float *moved_hat = c_hat + at + w, *moved_bar = c_bar + at + w;
            outer(of(&Stream::alpha_hat, s, layer), w, {moved_hat, c + at}, {moved_bar, c_dot + at});
            if (layer) apply(c_hat + at, true, w, {alpha, moved_hat}, {alpha_dot, moved_bar}, -1, true);
        });
    }
};

template <class F> static void each_structure(const Program* p, F work) {
    parallel(p->threads, p->structures, [&](int b) { work(Structure{*p, b}); });
}

// All units of all streams; those of the first, which for k = 2 are small, come last.
template <class F> static void each_unit(const Program* p, F work) {
    parallel(p->threads, p->streams * p->units(), [&](int task) {
        const Stream& s = p->stream[p->streams - 1 - task / p->units()];
        by_lanes(s.width, [&](auto l) { work(Unit<l>{s, task % p->units()}, l); });
    });
}

// Gradient with respect to the tables. A task is one layer of a stream for a share of the structures, with its
// own partial sums. The number of shares is fixed, so results do not depend on the number of threads.
constexpr int SHARES = 2;

static void by_tables(const Program* p) {
    parallel(p->threads, p->streams * p->layers * SHARES, [&](int task) {
        const Stream& s = p->stream[p->streams - 1 - task / (p->layers * SHARES)];
        const int layer = task / SHARES % p->layers, share = task % SHARES;
        float* sums = s.by_table + share * s.table_size();
        for (int j = 0; j < s.modules; ++j)
            std::fill_n(sums + (long(j) * s.layers + layer) * s.rows * s.width, long(s.rows) * s.width, 0.0f);
        for (int b = share; b < p->structures; b += SHARES)
            by_lanes(s.width, [&](auto l) { Unit<l>{s, layer * p->structures + b}.hats(p->d_dot, sums); });
    });
}

extern "C" {
void geomatt_energies(const Program* p) {
    each_structure(p, [](const Structure& one) { one.places(); });
    each_unit(p, [](const auto& unit, auto) { unit.attention(); });
    each_structure(p, [](const Structure& one) { one.energies(); });
}

// Called after the energies.
void geomatt_forces(const Program* p) {
    each_structure(p, [](const Structure& one) { one.adjoints(); });
    each_unit(p, [](const auto& unit, auto l) {
        unit.adjoints();
        pull<l>(unit.s, unit.unit);
    });
    each_structure(p, [](const Structure& one) { one.forces(); });
}

// Called after the forces.
void geomatt_gradient(const Program* p) {
    each_structure(p, [](const Structure& one) { one.rates(); });
    each_unit(p, [p](const auto& unit, auto) { unit.attention_dot(p->d_dot); });
    each_structure(p, [](const Structure& one) { one.hats(); });
    by_tables(p);
}
}
